"""Which commits of a run wake the dispatcher at once: those that leave what is due before it looks by itself."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents import AgentRun
from runs.db import nudge
from tests.support.durable import Lab, lab  # noqa: F401
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def just_nudged(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[None]:
    """What can wait is left for later: this process has sent a nudge a moment ago."""
    settings.WAKEFUL_NOTIFY_THROTTLE = settings.WAKEFUL_NOTIFY_THROTTLE * 0
    monkeypatch.setattr(nudge, "_last_sent", time.monotonic())
    monkeypatch.setattr(nudge, "_owed", False)
    monkeypatch.setattr(nudge, "LATER", 3600.0)
    yield
    connection.close()


def nudges_of(lab: Lab, body: Any, *, durable: bool = False, **fields: Any) -> int:  # noqa: F811
    """How many nudges the execution of such a run sends."""
    lab.declare(body, "sender", durable=durable)
    make_run(agent="sender", trigger="sender", policy={"durable": durable}, **fields)
    with CaptureQueriesContext(connection) as queries:
        assert lab.claim_and_execute()
    return sum("pg_notify" in query["sql"] for query in queries)


def test_a_success_that_leaves_nothing_due_can_wait(lab: Lab) -> None:  # noqa: F811
    assert nudges_of(lab, lambda run: None) == 0
    assert nudges_of(lab, lambda run: None, key="free", slot=1) == 0
    assert nudge._owed


def test_a_wake_that_is_due_after_the_next_look_can_wait(lab: Lab) -> None:  # noqa: F811
    later, soon = settings.WAKEFUL_SAFETY_LOOK, settings.WAKEFUL_SAFETY_LOOK / 2

    assert nudges_of(lab, lambda run: run.wake_in(later)) == 0
    assert nudges_of(lab, lambda run: run.wake_in(soon)) == 1


def test_an_emitted_event_cannot_wait(lab: Lab) -> None:  # noqa: F811
    assert nudges_of(lab, lambda run: run.emit("order.paid", {})) == 1


def test_an_event_of_a_step_does_not_wait_for_the_end_of_the_body(lab: Lab) -> None:  # noqa: F811
    sent: list[bool] = []

    def body(run: AgentRun) -> None:
        run.emit("order.paid", {})
        sent.append(any("pg_notify" in query["sql"] for query in connection.queries))

    nudges_of(lab, body, durable=True)

    assert sent == [True]


def test_a_run_that_is_let_past_cannot_wait(lab: Lab) -> None:  # noqa: F811
    make_run(agent="sender", key="busy", ready_at=None)

    assert nudges_of(lab, lambda run: None, key="busy", slot=1) == 1


def test_a_parent_cannot_wait(lab: Lab) -> None:  # noqa: F811
    assert nudges_of(lab, lambda run: None, parent_id=make_run(status="waiting").pk) == 1


def test_a_failure_that_is_tried_again_cannot_wait(lab: Lab) -> None:  # noqa: F811
    def body(run: AgentRun) -> None:
        raise ValueError

    assert nudges_of(lab, body) == 1
