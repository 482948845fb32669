"""A wake that a run has set for next month waits in the outbox, and does not count as stuck."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from django.utils import timezone

from config.health import situation
from config.health.problems import problems
from config.health.verify import verify
from runs.models import OutboxMessage
from runs.sign import COUNTED
from runs.signs.undelivered import UNDELIVERED
from tests.config.health.test_metrics import scrape

pytestmark = pytest.mark.django_db


def put(topic: str, due_in: timedelta, **fields: object) -> None:
    OutboxMessage.objects.create(topic=topic, payload={}, available_at=timezone.now() + due_in, **fields)


@pytest.fixture(autouse=True)
def wakes_ahead() -> None:
    for days in range(1, 6):
        put("wakeup", timedelta(days=days))


def names() -> Sequence[str]:
    return [problem.name for problem in problems(situation.read_situation())]


def test_the_outbox_counts_what_is_due() -> None:
    assert situation.read_situation().outbox == 0
    assert "outbox" not in names()

    put("wakeup", timedelta(minutes=-1))

    assert situation.read_situation().outbox == 1


def test_the_metrics_distinguish_what_waits_from_what_is_ahead() -> None:
    put("event", timedelta(minutes=-1))

    metrics = scrape()

    assert metrics["wakeful_outbox_messages",] == 1
    assert metrics["wakeful_wakeups_ahead",] == 5


def test_an_undelivered_message_is_counted_behind_any_number_of_future_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UNDELIVERED, "sql", UNDELIVERED.sql.replace(str(COUNTED), "2"))
    put("alarm", timedelta(seconds=30), last_error="ConnectionError", attempts=3)

    [undelivered] = situation.read_situation()[UNDELIVERED]
    assert undelivered.count == 1


def test_an_installation_is_drained_while_wakes_are_ahead() -> None:
    assert not verify(drained=True).violated

    put("wakeup", timedelta(minutes=-1))

    assert [one.name for one in verify(drained=True).violated] == ["drained: the outbox is empty"]
