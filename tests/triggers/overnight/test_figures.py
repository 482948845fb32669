"""What agents did overnight, counted from rows, at a cost that does not grow with the table."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from agents.kernel.ids import first_id_at
from runs.db.sql import execute, fetch
from runs.models import NIL, Delivery, Incident, Notification
from runs.notifications.alarms import begin
from tests.support.journals import make_step
from tests.support.notifying import make_recipient
from tests.support.runs import make_run
from tests.support.triggers import make_event, make_trigger
from triggers.exceptions import RuleError
from triggers.models import Decision, Trigger
from triggers.overnight import figures
from triggers.overnight.figures import DELIVERED, INCIDENTS, QUIET, SPOKEN, WOKEN, Figures, asked_of, overnight
from triggers.overnight.night import Night, last_night, night_until

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
VIENNA = ZoneInfo("Europe/Vienna")
USED = {"model": "paid", "input_tokens": 100, "output_tokens": 10, "cost": "0.25"}


def around_now() -> Night:
    """Now is in the middle of a slot of half an hour, the 24th."""
    start = timezone.now() - 11.75 * HOUR
    return Night(start=start, end=start + DAY)


def id_at(at: datetime) -> UUID:
    return UUID(int=first_id_at(at).int | uuid4().int >> 48)


def quiet(trigger: Trigger, **fields: Any) -> Decision:
    answer = {"outcome": "quiet", "reason": "nothing new", **fields}
    return Decision.objects.create(event=make_event(), trigger=trigger, replay_id=NIL, **answer)


def counted() -> dict[str, Figures]:
    return {one.agent: one for one in overnight(around_now()).agents}


@pytest.mark.django_db
def test_runs_and_quiet_gates_are_what_woke() -> None:
    watch = make_trigger("desk-watch", agent="watch")
    now = timezone.now()
    for status in ("succeeded", "failed", "waiting"):
        make_run(status=status, agent="watch", started_at=now)
    make_run(agent="watch")  # it waits for a worker
    quiet(watch)
    quiet(watch, outcome="joined")
    make_run(status="succeeded", agent="other", started_at=now, event_id=id_at(now - DAY))

    found = counted()

    assert set(found) == {"watch"}
    watched = found["watch"]
    assert (watched.woken, watched.runs, watched.quiet, watched.failed) == (4, 3, 1, 1)
    assert {number: vars(slot) for number, slot in watched.slots.items()} == {
        23: {"runs": 3, "quiet": 1, "failed": 1, "spoke": 0, "incidents": 0}
    }


@pytest.mark.django_db
def test_notifications_are_counted_with_what_became_of_them() -> None:
    notifications = [Notification.objects.create(sender="watch", text=str(number)) for number in range(3)]
    ops = make_recipient()
    now = timezone.now()
    fields = {"recipient": ops, "name": "ops"}
    Delivery.objects.create(notification=notifications[0], status="sent", sent_at=now, **fields)
    Delivery.objects.create(notification=notifications[1], status="suppressed", reason="silenced", **fields)
    Delivery.objects.create(notification=notifications[2], status="held", reason="quiet hours", due_at=now, **fields)
    begin("trigger-paused:watch", severity="bad", text="It is paused.", sender="watch")

    found = counted()

    assert (found["watch"].spoke, dict(found["watch"].deliveries)) == (3, {"sent": 1, "suppressed": 1, "held": 1})
    assert found["wakeful"].spoke == 1


@pytest.mark.django_db
def test_an_incident_counts_when_it_opened_and_its_messages_are_wakefuls_own() -> None:
    now = timezone.now()
    for number, opened_at in enumerate((now, now - DAY, None)):
        Incident.objects.create(
            kind="trigger",
            subject=f"t-{number}",
            name="t",
            agent="clerk",
            fingerprint="x",
            cause="x",
            opened_at=opened_at,
        )
    Incident.objects.create(kind="source", subject="shop", name="shop", fingerprint="x", cause="x", opened_at=now)
    Notification.objects.create(sender="clerk", text="It fails", topic="incident:1")

    found = counted()

    assert (found["clerk"].incidents, found["clerk"].spoke) == (1, 0)
    assert (found["wakeful"].incidents, found["wakeful"].spoke) == (1, 1)


@pytest.mark.django_db
def test_the_cost_of_a_request_counts_when_it_ended() -> None:
    old = make_run(status="succeeded", agent="clerk", event_id=id_at(timezone.now() - 3 * DAY))
    make_step(old, "model:1", kind="model", usage=USED)
    make_step(old, "model:2", kind="model", usage={"model": "new"})
    make_step(old, "model:0", kind="model", usage=USED, ended_at=timezone.now() - DAY)

    clerk = counted()["clerk"]

    assert (clerk.requests, clerk.tokens, clerk.usd, clerk.unpriced) == (2, 110, Decimal("0.25"), 1)
    assert (clerk.woken, overnight(around_now()).total.usd) == (0, Decimal("0.25"))


@pytest.mark.django_db
def test_failing_agents_come_first_and_quiet_agents_last() -> None:
    now = timezone.now()
    quiet(make_trigger("sleepy"))
    make_run(status="succeeded", agent="busy", started_at=now)
    make_run(status="succeeded", agent="busy", started_at=now)
    Notification.objects.create(sender="talker", text="Hello")
    make_run(status="failed", agent="broken", started_at=now)

    assert [one.agent for one in overnight(around_now()).agents] == ["broken", "talker", "busy", "sleepy"]


@pytest.mark.django_db
def test_a_figure_that_is_too_low_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "MOST", 2)
    for _ in range(3):
        make_run(status="succeeded", agent="busy", started_at=timezone.now())

    found = overnight(around_now())

    assert (found.cut, found.total.runs) == (["runs"], 2)


def test_a_night_begins_the_evening_before_and_is_no_longer_than_a_week() -> None:
    noon = datetime(2026, 10, 25, 12, tzinfo=UTC)  # the clock was put back in the night before

    assert night_until(noon, VIENNA).start == datetime(2026, 10, 24, 16, tzinfo=UTC)
    assert last_night(7, noon, VIENNA).end == datetime(2026, 10, 25, 6, tzinfo=UTC)
    assert last_night(15, noon, VIENNA).end == datetime(2026, 10, 24, 13, tzinfo=UTC)
    for start in (noon, noon + HOUR, noon - 8 * DAY):
        with pytest.raises(RuleError):
            Night(start=start, end=noon)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (WOKEN, "runs_run_pkey"),
        (QUIET, "decision_once"),
        (SPOKEN, "notification_newest"),
        (DELIVERED, "runs_delivery_pkey"),
        (INCIDENTS, "incident_last"),
    ],
)
def test_each_figure_reads_an_index_from_its_end_backwards(statement: str, index: str) -> None:
    # The tables are too small for the planner to want it by itself.
    for node in ("seqscan", "bitmapscan", "sort"):
        execute(f"SET LOCAL enable_{node} = off")

    plan = "\n".join(row[0] for row in fetch(f"EXPLAIN {statement}", asked_of(around_now())))

    assert re.search(rf"Index Scan (Backward )?using {index} .*\n +Index Cond", plan), plan
    assert "Seq Scan" not in plan
