"""Looks that go on all day read what they are after, and nothing of what only waits."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from runs import outbox, timers
from runs.models import OutboxMessage
from runs.sql import execute, fetch
from tests.runs.factories import make_run

pytestmark = pytest.mark.django_db


def steps_of(statement: str, parameters: list[Any]) -> Iterator[dict[str, Any]]:
    """The steps of the plan that does for any parameters, with what each met."""
    execute("SET LOCAL plan_cache_mode = force_generic_plan")
    execute("SET LOCAL enable_seqscan = off")  # of so few rows it would be the cheapest
    [(plan,)] = fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
    steps = [(plan if isinstance(plan, list) else json.loads(plan))[0]["Plan"]]
    while steps:
        step = steps.pop()
        steps += step.get("Plans", [])
        yield step


@pytest.mark.parametrize("statement", [timers.WAKE, timers.DUE_WITHOUT_PLACE])
def test_waking_passes_over_no_run_that_is_due_later(statement: str) -> None:
    for _ in range(50):
        make_run(ready_at=None, due_at=timezone.now() + timedelta(days=1))

    steps = list(steps_of(statement, [10]))

    assert any("due_at <=" in step.get("Index Cond", "") for step in steps)
    assert not any(step.get("Rows Removed by Filter") for step in steps)


@pytest.mark.parametrize("statement", [outbox.TAKE, outbox.LIST])
def test_delivery_passes_over_no_message_that_is_to_be_sent_later(statement: str) -> None:
    for number in range(50):
        OutboxMessage.objects.create(
            topic="t", key=str(number), payload={}, available_at=timezone.now() + timedelta(days=1)
        )

    steps = list(steps_of(statement, [["t"], 10]))

    assert any("available_at <=" in step.get("Index Cond", "") for step in steps)
    assert not any(step.get("Rows Removed by Filter") for step in steps)
