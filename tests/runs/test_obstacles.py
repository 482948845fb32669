"""What one obstacle may keep from going on: nothing but itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from celery import current_app
from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.db.models.functions import Now

from runs import waits
from runs.chores import timers
from runs.claim import QUEUE_LOCK, QUEUE_SPACE, claim_next
from runs.db.listen import set_timeouts
from runs.db.sql import fetch
from runs.models import OutboxMessage, Queue, Run, Wait, Worker
from runs.network import broker
from runs.outbox import deliver_inside
from runs.processes.rescue import Rescuer, close_unseen
from runs.queues import doorbell
from tests.support.durable import Lab, lab
from tests.support.runs import make_run
from tests.support.stack import eventually, within
from tests.support.triggers import make_event
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.models import Event

__all__ = ["lab"]


@contextmanager
def lock_on(run: Run) -> Iterator[None]:
    """Another session holds the run's row, and this session waits for locks no longer than a dispatcher's does."""
    with psycopg.connect(**parameters()) as holder:
        holder.execute("SELECT FROM runs_run WHERE id = %s FOR UPDATE", [run.id])
        set_timeouts()
        yield
        holder.rollback()


def parameters() -> dict[str, Any]:
    wanted = ("host", "port", "user", "password", "dbname")
    return {name: value for name, value in connection.get_connection_params().items() if name in wanted}


def status_of(run: Run) -> str:
    return Run.objects.get(pk=run.pk).status


@pytest.mark.django_db(transaction=True)
def test_a_lock_on_one_lost_run_does_not_keep_the_others_from_being_rescued() -> None:
    worker = Worker.objects.create(
        id=uuid4(), kind="worker", host="h", pid=1, version="1", concurrency=3, stopped_at=Now()
    )
    locked, *others = (make_run(ready_at=None) for _ in range(3))
    for pid, run in enumerate((locked, *others)):
        owned = {"worker": worker, "pid": pid, "claimed_at": Now(), "deadline_at": Now(), "attempt": 1, "epoch": 1}
        Run.objects.filter(pk=run.pk).update(status="running", **owned)

    with lock_on(locked):
        assert Rescuer().rescue() == 2

    assert [Run.objects.get(pk=run.pk).status for run in (locked, *others)] == ["running", "queued", "queued"]
    assert Rescuer().rescue() == 1
    connection.close()  # its timeouts are no other test's


@pytest.mark.django_db(transaction=True)
def test_a_rescue_whose_commit_gets_no_answer_says_so(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """No later rescue finds the run, if the commit has happened."""
    worker = Worker.objects.create(id=uuid4(), kind="worker", host="h", pid=1, version="1", stopped_at=Now())
    run = make_run(ready_at=None)
    owned = {"worker": worker, "pid": 7, "claimed_at": Now(), "deadline_at": Now(), "attempt": 1, "epoch": 1}
    Run.objects.filter(pk=run.pk).update(status="running", **owned)

    def end_the_session(point: str) -> None:
        if point == "after_take_away_commit":
            with psycopg.connect(**parameters()) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", [connection.connection.info.backend_pid])
            fetch("SELECT 1")

    monkeypatch.setattr("runs.transitions.leave.failpoint", end_the_session)
    with pytest.raises(OperationalError):
        Rescuer().rescue()
    connection.close()

    assert status_of(run) == "queued"
    [record] = [record for record in caplog.records if "run.lost_unconfirmed" in record.getMessage()]
    assert str(run.id) in record.getMessage()


@pytest.mark.django_db(transaction=True)
def test_a_lock_on_a_run_that_waits_for_an_event_keeps_no_other_event_from_being_dispatched(lab: Lab) -> None:
    locked, other = (lab.run(lambda run, n=n: run.wait_for_event("paid", match={"n": n}) and None) for n in (1, 2))
    event, _ = (make_event(type="paid", data={"n": n}) for n in (1, 2))

    with lock_on(locked):
        assert dispatch(Rules()).dispatched == 1
        assert status_of(other) == "queued"
    assert dispatch(Rules()).dispatched == 1

    assert status_of(locked) == "queued"
    assert Wait.objects.get(run=locked).event_id == event.pk


@pytest.mark.django_db(transaction=True)
def test_an_open_wait_of_a_cancelled_run_does_not_stop_dispatch(lab: Lab) -> None:
    run = lab.run(lambda run: run.wait_for_event("paid") and None)
    Run.objects.filter(pk=run.pk).update(status="cancelled", finished_at=Now())
    make_event(type="paid", data={})

    assert dispatch(Rules()).dispatched == 1


@pytest.mark.django_db(transaction=True)
def test_a_locked_run_does_not_delay_the_look_back_for_another(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.executor.look_back", lambda *_: None)
    locked, other = (lab.run(lambda run, n=n: run.wait_for_event("paid", match={"n": n}) and None) for n in (1, 2))
    for n in (1, 2):
        make_event(type="paid", data={"n": n})
    Event.objects.update(dispatched_at=Now())

    with lock_on(locked):
        assert waits.look_back() == 1
        assert status_of(other) == "queued"
    assert waits.look_back() == 1

    assert status_of(locked) == "queued"


@pytest.mark.django_db(transaction=True)
def test_a_wait_whose_look_back_fails_still_gets_later_events(lab: Lab) -> None:
    run = lab.run(lambda run: run.wait_for_event("paid", match={"n": 1}) and None)
    Wait.objects.update(looked_at=None, match={"a": 1, "a.b": 2})  # which no value can match

    assert waits.look_back() == 0

    make_event(type="paid", data={"n": 1})
    assert lab.go_on(run).status == "succeeded"


@pytest.mark.sampled
def test_a_broker_that_is_away_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """kombu, left to itself, tries for 6 s: dispatch, rescue and every claim would wait for it."""
    monkeypatch.setattr(broker, "breaker", broker.closed_breaker())
    monkeypatch.setattr(broker, "connection", lambda: current_app.connection_for_write("redis://127.0.0.1:1/0"))

    with within(2):
        assert not doorbell.publish([doorbell.Wanted(queue="default", bound=2, claimable=1)])


@pytest.mark.django_db(transaction=True, serialized_rollback=True)
def test_a_locked_worker_row_does_not_stop_the_rescue_of_others() -> None:
    locked, other = (
        Worker.objects.create(kind="worker", host="h", pid=pid, version="1", seen_at="2026-01-01T00:00Z")
        for pid in (1, 2)
    )
    with psycopg.connect(**parameters()) as holder:
        holder.execute("SELECT FROM runs_worker WHERE id = %s FOR UPDATE", [locked.id])
        set_timeouts()
        close_unseen()
        holder.rollback()

    other.refresh_from_db()
    locked.refresh_from_db()
    assert (other.stopped_reason, locked.stopped_reason) == ("unseen", "")
    close_unseen()
    locked.refresh_from_db()
    assert locked.stopped_reason == "unseen"
    connection.close()


@pytest.mark.django_db(transaction=True, serialized_rollback=True)
def test_a_lock_on_one_child_of_a_cancelled_run_keeps_no_other_from_being_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runs.attempt.children.LOCKED_AGAIN", timedelta(hours=1))
    parent = make_run(status="cancelled", ready_at=None)
    locked, other = (make_run(parent_id=parent.id) for _ in range(2))
    payload = {"run": str(parent.id), "agent": "a", "trigger": None, "status": "cancelled", "error": ""}
    OutboxMessage.objects.create(topic="run.finished", payload=payload)

    with lock_on(locked):
        deliver_inside(10, ["run.finished"])
        assert (status_of(locked), status_of(other)) == ("queued", "cancelled")
        assert OutboxMessage.objects.filter(payload=payload, available_at__gt=Now()).exists()

    OutboxMessage.objects.update(available_at=Now())
    deliver_inside(10, ["run.finished"])
    assert status_of(locked) == "cancelled"
    connection.close()


@pytest.mark.django_db(transaction=True, serialized_rollback=True)
def test_a_lock_on_a_parent_that_waits_keeps_no_other_from_being_woken() -> None:
    locked, other = (make_run(status="waiting", ready_at=None) for _ in range(2))
    for run in (locked, other):
        Wait.objects.create(
            run=run, key="join", position=0, is_keyed=False, kind="children", children=[], looked_at=Now()
        )
        OutboxMessage.objects.create(topic="child.finished", payload={"parent": str(run.id)})

    with lock_on(locked):
        deliver_inside(10, ["child.finished"])
        assert (status_of(locked), status_of(other)) == ("waiting", "queued")

    OutboxMessage.objects.update(available_at=Now())
    deliver_inside(10, ["child.finished"])
    assert status_of(locked) == "queued"
    connection.close()


@pytest.mark.django_db
def test_a_worker_that_died_while_the_clock_was_ahead_is_closed_a_lease_after_the_correction() -> None:
    died = Worker.objects.create(kind="worker", host="h", pid=1, version="1", seen_at=Now() + timedelta(hours=1))

    assert timers.is_due(timers.read_run_timers().lease_expiry)
    Rescuer().rescue()

    died.refresh_from_db()
    assert died.stopped_at is None
    assert timedelta() < (timers.read_run_timers().lease_expiry or timedelta()) <= settings.WAKEFUL_LEASE


@pytest.mark.django_db(transaction=True)
def test_a_child_that_freezes_while_it_claims_from_a_limited_queue_stops_no_other_child() -> None:
    Queue.objects.create(name="default", max_running=3)
    run = make_run()
    worker = Worker.objects.create(kind="worker", host="h", pid=1, version="1", concurrency=1)
    frozen = psycopg.connect(**parameters())  # its host stands still here
    frozen.execute(QUEUE_LOCK.encode(), {"space": QUEUE_SPACE, "queue": "default"})

    first = claim_next(worker.id, "default", {"greeter": "1"})
    claimed = eventually(lambda: claim_next(worker.id, "default", {"greeter": "1"}))

    assert first is None  # it went away, to serve other queues
    assert claimed and claimed.run_id == run.id
    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
        frozen.execute("SELECT 1")


@pytest.mark.django_db(transaction=True)
def test_a_session_that_was_ended_for_standing_still_counts_as_a_database_that_is_away() -> None:
    with pytest.raises(OperationalError, match="idle in a transaction"), transaction.atomic():
        fetch("SELECT set_config('idle_in_transaction_session_timeout', '100ms', true)")
        ended = "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %s"
        with psycopg.connect(**parameters(), autocommit=True) as other:
            pid = connection.connection.info.backend_pid
            eventually(lambda: other.execute(ended, [pid]).fetchone() == (True,))
        fetch("SELECT 1")

    assert fetch("SELECT 1") == [(1,)]
