"""A message waits for no other: not for another topic, nor for a row that another message needs locked, nor for the broker."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from runs import outbox
from runs.chores import timers
from runs.db.sql import database_now, execute, fetch_column
from runs.models import OutboxMessage, Queue
from runs.network import broker
from runs.ports import known_topics, ports
from runs.queues import pause
from tests.support.triggers import make_trigger

pytestmark = pytest.mark.django_db(transaction=True, serialized_rollback=True)


@contextmanager
def neighbour(statement: str, *parameters: Any) -> Iterator[None]:
    """Another session's transaction, which has done this and stays open."""
    where = {**connection.get_connection_params(), "cursor_factory": psycopg.Cursor}
    with psycopg.connect(**where) as session:
        session.execute(statement.encode(), parameters)
        yield
        session.rollback()


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the handlers of two topics inside, two to the broker and a slow one were given."""
    seen: list[Any] = []
    monkeypatch.setattr(ports, "inside", {"a": seen.extend, "b": seen.extend})
    monkeypatch.setattr(ports, "outside", {"task": seen.append})
    monkeypatch.setattr(ports, "slow", {"alarm": seen.append})
    monkeypatch.setattr(broker, "breaker", broker.closed_breaker())
    return seen


def leave(topic: str, *payloads: Any) -> None:
    OutboxMessage.objects.bulk_create(OutboxMessage(topic=topic, payload=payload) for payload in payloads)


def finished(trigger: Any, count: int) -> list[dict[str, Any]]:
    payload = {"agent": "greeter", "trigger": str(trigger.id), "status": "failed", "error": "boom"}
    return [{**payload, "run": str(uuid4())} for _ in range(count)]


def counts() -> dict[str, int]:
    return {topic: OutboxMessage.objects.filter(topic=topic).count() for topic in ("a", "b", "task", "alarm")}


def test_a_locked_trigger_delays_only_messages_about_its_own_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_one_by_one", pytest.fail)
    locked, other = make_trigger("locked"), make_trigger("other", types=["other.*"])
    leave("run.finished", *finished(locked, 200), *finished(other, 3))

    with neighbour("SELECT FROM triggers_trigger WHERE id = %s FOR UPDATE", locked.pk):
        with CaptureQueriesContext(connection) as captured:
            outbox.deliver_inside(500, ["run.finished"])
            outbox.deliver_inside(500, ["run.finished"])
        other.refresh_from_db()
        assert other.failures_in_a_row == 3
        assert OutboxMessage.objects.filter(attempts=0, last_error="").count() == 200
        assert timers.read_run_timers().inside["run.finished"] > timedelta()  # nothing to do before that
        assert len(captured) < 30

    OutboxMessage.objects.update(available_at=database_now())
    outbox.deliver_inside(500, ["run.finished"])
    locked.refresh_from_db()
    assert locked.failures_in_a_row == 200 or locked.is_paused
    assert not OutboxMessage.objects.filter(topic="run.finished").exists()


def test_a_wake_waits_while_its_trigger_is_being_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_one_by_one", pytest.fail)
    locked, other = make_trigger("locked"), make_trigger("other")
    payload = {"data": None, "reason": ""}
    for number, trigger in enumerate((locked, other)):
        leave("wakeup", {**payload, "trigger": str(trigger.id), "run": str(uuid4()), "name": f"wake-{number}"})

    with neighbour("SELECT FROM triggers_trigger WHERE id = %s FOR UPDATE", locked.pk):
        outbox.deliver_inside(500, ["wakeup"])
        outbox.deliver_inside(500, ["wakeup"])

        [left] = OutboxMessage.objects.all()
        assert left.payload["trigger"] == str(locked.id)


def test_a_handler_that_waits_for_locks_nevertheless_stops_at_the_second(
    handled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def wait_for_lock(payloads: Any) -> None:
        tried.append(len(payloads))
        execute("UPDATE runs_queue SET paused_reason = 'x' WHERE name = 'locked'")

    monkeypatch.setitem(ports.inside, "a", wait_for_lock)
    Queue.objects.create(name="locked")
    leave("a", *range(50))

    with neighbour("SELECT FROM runs_queue WHERE name = 'locked' FOR UPDATE"):
        outbox.deliver_inside(500, ["a"])

    assert tried == [50, 1, 1]
    assert OutboxMessage.objects.filter(available_at__gt=database_now(), attempts=0).count() == 50


def test_a_message_whose_handler_fails_stops_no_other_message(
    handled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_sevens(payloads: Any) -> None:
        if 7 in payloads:
            raise ValueError("seven")
        handled.extend(payloads)

    monkeypatch.setitem(ports.inside, "a", refuse_sevens)
    leave("a", *range(10))

    outbox.deliver_inside(500, ["a"])

    assert sorted(handled) == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert "seven" in OutboxMessage.objects.get().last_error


def test_a_message_that_cannot_be_read_stops_no_other_message(handled: list[Any]) -> None:
    deep = "[" * 3000 + "]" * 3000
    for topic in ("a", "task"):
        leave(topic, {"n": 1}, {"n": 2})
        execute(
            "UPDATE runs_outboxmessage SET payload = %s::jsonb WHERE payload->>'n' = '1' AND topic = %s::text",
            [deep, topic],
        )

    outbox.deliver_inside(10)
    outbox.deliver_outside(10)

    assert handled == [{"n": 2}, {"n": 2}]
    errors = fetch_column("SELECT last_error FROM runs_outboxmessage WHERE available_at > clock_timestamp()")
    assert len(errors) == 2 and all(error.startswith("RecursionError") for error in errors)


def test_a_topic_is_handled_by_one_dispatcher_at_a_time_so_that_its_order_holds(handled: list[Any]) -> None:
    leave("a", 1)
    leave("b", 2)

    with neighbour("SELECT pg_advisory_xact_lock(%s::int, hashtext('a'))", outbox.LOCK_SPACE):
        assert outbox.deliver_inside(10) == 1

    assert handled == [2]
    assert outbox.deliver_inside(10) == 1


def test_a_message_of_a_newer_version_costs_nothing_and_is_left_alone(handled: list[Any]) -> None:
    leave("of.a.newer.version", 1)

    look = timers.read_run_timers()

    assert (look.inside, look.outside, look.slow, look.next) == ({}, None, None, None)
    assert outbox.deliver_inside(10) + outbox.deliver_outside(10) + outbox.deliver_slow() == 0
    assert OutboxMessage.objects.count() == 1


def test_a_look_at_an_empty_outbox_asks_for_no_topic() -> None:
    """Counted as scans of the table or of its indexes, whichever the planner takes for a table of one row."""
    scans = """
    SELECT sum(pg_stat_get_xact_numscans(relation)) FROM (
      SELECT 'runs_outboxmessage'::regclass AS relation
      UNION ALL SELECT indexrelid FROM pg_index WHERE indrelid = 'runs_outboxmessage'::regclass) relations
    """
    counts = []  # of this session, since it has reported them last
    with transaction.atomic():
        for is_empty in (True, False):
            if not is_empty:
                leave("run.finished", {})
            counts += fetch_column(scans)
            timers.read_run_timers()
            counts += fetch_column(scans)

    assert counts[1] - counts[0] < len(known_topics()) <= counts[3] - counts[2]


def test_while_everything_is_paused_periodic_tasks_wait_and_alarms_do_not(handled: list[Any]) -> None:
    leave("task", "a task")
    leave("alarm", "an alarm")
    pause.pause("*", reason="restored", by="test")

    assert timers.read_run_timers().outside is None
    outbox.deliver_outside(10)
    outbox.deliver_slow()
    assert handled == ["an alarm"]

    pause.resume("*", by="test")
    assert timers.is_due(timers.read_run_timers().outside)
    outbox.deliver_outside(10)
    assert handled == ["an alarm", "a task"]
    assert not OutboxMessage.objects.exists()


def test_a_queue_that_is_paused_alone_keeps_no_periodic_task(handled: list[Any]) -> None:
    leave("task", "a task")
    Queue.objects.create(name="default")
    pause.pause("default", reason="", by="test")

    outbox.deliver_outside(10)

    assert handled == ["a task"]


def test_a_whole_batch_tries_an_absent_broker_once_and_counts_no_attempt(
    handled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def away(payload: Any) -> None:
        calls.append(payload)
        broker.breaker.failed("refused")
        raise broker.BrokerAway("refused")

    monkeypatch.setitem(ports.outside, "task", away)
    leave("task", *range(50))

    with CaptureQueriesContext(connection) as captured:
        outbox.deliver_outside(50)

    assert len(calls) == 1 and len(captured) == 2  # one reserves them, one puts them back
    assert OutboxMessage.objects.filter(attempts=0, last_error="").count() == 50
    assert timers.read_run_timers().outside is not None
    OutboxMessage.objects.update(available_at=database_now())
    monkeypatch.setitem(ports.outside, "task", handled.append)
    outbox.deliver_outside(50)
    assert handled == list(range(50))


def test_a_message_the_broker_chokes_on_goes_behind_the_others(
    handled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def choke_on_first(payload: Any) -> None:
        if broker.breaker.retry_in:
            raise broker.BrokerAway("")
        if payload == 0:
            broker.breaker.failed("reset")
            raise ConnectionError("reset")
        handled.append(payload)
        broker.breaker.succeeded()

    monkeypatch.setitem(ports.outside, "task", choke_on_first)
    leave("task", 0, 1, 2)

    outbox.deliver_outside(10)
    assert handled == []
    broker.breaker.retry_at = 0.0
    OutboxMessage.objects.filter(attempts=0).update(available_at=database_now())
    outbox.deliver_outside(10)

    assert handled == [1, 2]
    assert "reset" in OutboxMessage.objects.get().last_error


def test_sending_stops_long_before_others_would_take_the_messages_for_lost(
    handled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "SEND_AT_MOST", -1.0)
    leave("task", 1, 2)

    outbox.deliver_outside(10)

    assert handled == []
    assert OutboxMessage.objects.filter(attempts=0, available_at__lte=database_now()).count() == 2
