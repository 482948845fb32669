"""What retention takes of runs, and what it must leave."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.utils import timezone

from config import retention
from runs.actions.requeue import requeue
from runs.db.sql import fetch
from runs.exceptions import IllegalState
from runs.models import Alarm, Attempt, AuditEntry, Notification, ProcessedEvent, Run, Sweep, Worker
from runs.retention.sweep import set_out_afresh
from runs.states import LIVE, RunStatus
from tests.support.old_rows import ago, old_event, old_run

pytestmark = pytest.mark.django_db

VACUUMED = [
    ("runs_run", "autovacuum_vacuum_scale_factor=0.01"),
    ("runs_outboxmessage", "autovacuum_vacuum_scale_factor=0.01"),
    ("runs_attemptrow", "autovacuum_vacuum_insert_scale_factor=0.05"),
    ("runs_processedevent", "autovacuum_vacuum_insert_scale_factor=0.05"),
    ("runs_worker", "fillfactor=50"),
    ("runs_sweep", "fillfactor=50"),
    ("triggers_event", "autovacuum_vacuum_cost_delay=0"),
    ("triggers_decision", "autovacuum_vacuum_insert_scale_factor=0.05"),
    ("triggers_window", "autovacuum_vacuum_threshold=500"),
    ("triggers_schedule", "autovacuum_vacuum_threshold=500"),
    ("triggers_rateuse", "fillfactor=70"),
    ("runs_run", "vacuum_index_cleanup=on"),
    ("runs_wait", "vacuum_index_cleanup=on"),
    ("triggers_event", "vacuum_index_cleanup=on"),
]


def pruned() -> dict[str, int]:
    return {one.name: one.rows for one in retention.prune() if one.rows}


def owned(status: str) -> dict[str, Any]:
    """What a run in this state must have."""
    if status != RunStatus.RUNNING:
        return {}
    now = timezone.now()
    worker = Worker.objects.create(kind="worker", host="h", pid=1, version="1")
    return {"worker": worker, "pid": 7, "claimed_at": now, "deadline_at": now}


def test_an_old_run_loses_its_payload_and_keeps_its_row() -> None:
    run = old_run(old_event(31), days=31)

    assert pruned()["runs.payload"] == 1

    run.refresh_from_db()
    assert (run.input, run.result, run.error, run.status) == (None, None, "", "succeeded")
    assert run.payload_removed_at is not None
    attempt = run.attempts.get()
    assert (attempt.error, attempt.traceback, attempt.outcome) == ("", "", "failed")


def test_a_run_that_finished_lately_keeps_all_however_old_its_event() -> None:
    run = old_run(old_event(300), days=29)

    pruned()

    run.refresh_from_db()
    assert run.result == {"hello": "Ada"}


def test_an_older_run_goes_with_its_attempts() -> None:
    run, young = old_run(old_event(91), days=91), old_run(old_event(89), days=89)

    assert pruned()["runs"] == 1

    assert list(Run.objects.all()) == [young]
    assert not Attempt.objects.filter(run_id=run.id).exists()


@pytest.mark.parametrize("status", sorted(LIVE))
def test_nothing_live_is_pruned_however_old(status: str) -> None:
    run = old_run(old_event(1000), status=status, **owned(status))

    pruned()

    run.refresh_from_db()
    assert run.input == {"name": "Ada"}
    assert run.attempts.get().error == "Ada was away"


def test_a_run_that_lost_its_payload_is_not_requeued() -> None:
    run = old_run(old_event(31), days=31, status=RunStatus.FAILED)
    pruned()

    with pytest.raises(IllegalState, match="payload"):
        requeue(run.id, by="test")


def test_a_run_that_was_live_is_removed_by_the_next_walk() -> None:
    run = old_run(old_event(100), status=RunStatus.WAITING)
    pruned()
    Run.objects.filter(pk=run.pk).update(status="cancelled", finished_at=ago(days=95))
    assert "runs" not in pruned()

    set_out_afresh(every=timedelta())

    assert pruned()["runs"] == 1


def test_a_walk_reads_each_row_once() -> None:
    run = old_run(old_event(31), days=31)
    pruned()

    sweep = Sweep.objects.get(name="runs.payload")

    assert sweep.position > run.id
    assert sweep.completed_at is not None


def test_a_round_that_ran_out_of_time_is_gone_on_with() -> None:
    runs = [old_run(old_event(100 - number), days=91) for number in range(5)]
    step = next(step for step in retention.steps() if step.name == "runs")

    first = step.batch(2)
    assert (first.rows, first.more) == (2, True)
    assert Sweep.objects.get(name="runs").position == runs[1].id

    assert pruned()["runs"] == 3


def test_no_time_at_all_takes_nothing_and_shows_that_there_is_more() -> None:
    old_run(old_event(91), days=91)

    done = retention.prune(budget=timedelta())

    assert not any(one.rows or one.complete for one in done)


def test_a_dry_run_counts_the_rows_to_remove_and_changes_nothing() -> None:
    old_run(old_event(91), days=91)
    old_run(old_event(31), days=31)

    foreseen = {one.name: one.rows for one in retention.count() if one.rows}

    assert Run.objects.filter(payload_removed_at=None).count() == 2
    assert foreseen == {"runs.payload": 2, "runs": 1, "events.payload": 2, "events": 1}
    # The walk of payloads meets the older run, too, before it is deleted.
    assert pruned() == foreseen


def test_notifications_stopped_processes_alarms_and_the_audit_log_have_their_time() -> None:
    for days in (89, 91):
        Notification.objects.create(sender="a", text="t", created_at=ago(days=days))
        Worker.objects.create(kind="worker", host="h", pid=days, version="1", stopped_at=ago(days=days))
    for days in (729, 731):
        AuditEntry.objects.create(by="cli:ada", action="fire", kind="trigger", object_id="1", at=ago(days=days))
        Alarm.objects.create(name=str(days), severity="bad", text="t", ended_at=ago(days=days))
    Worker.objects.create(kind="worker", host="h", pid=1, version="1", seen_at=ago(days=1000))
    Alarm.objects.create(name="open", severity="bad", text="t", began_at=ago(days=1000))

    assert pruned() == {"notifications": 1, "workers": 1, "audit": 1, "alarms": 1}
    assert Alarm.objects.filter(name="open").exists()


def test_a_step_that_the_database_refuses_stops_no_other() -> None:
    """A table of the team's refers to an alarm that is too old."""
    alarm = Alarm.objects.create(name="old", severity="bad", text="t", ended_at=ago(days=1000))
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE of_the_team (alarm bigint REFERENCES runs_alarm (id))")
        cursor.execute("INSERT INTO of_the_team VALUES (%s)", [alarm.pk])
    Worker.objects.create(kind="worker", host="h", pid=1, version="1", stopped_at=ago(days=1000))
    AuditEntry.objects.create(by="cli:ada", action="fire", kind="trigger", object_id="1", at=ago(days=1000))

    with pytest.raises(IntegrityError):
        retention.prune()

    assert Alarm.objects.exists()
    assert not Worker.objects.exists() and not AuditEntry.objects.exists()


def test_the_ledger_outlives_the_run_it_names(settings: Any) -> None:
    settings.WAKEFUL_KEEP_RUNS = timedelta(days=40)
    event = old_event(60)
    old_run(event, days=60)

    pruned()

    assert not Run.objects.exists()
    assert ProcessedEvent.objects.get().event_id == event.id


@pytest.mark.parametrize(("table", "setting"), VACUUMED)
def test_every_busy_table_brings_its_vacuum_settings(table: str, setting: str) -> None:
    [(options,)] = fetch("SELECT reloptions FROM pg_class WHERE oid = %s::regclass", [table])

    assert setting in options


def test_the_renewal_of_a_lease_touches_no_index() -> None:
    fetched = fetch("SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'runs_worker'::regclass")

    assert not [definition for (definition,) in fetched if "seen_at" in definition]
