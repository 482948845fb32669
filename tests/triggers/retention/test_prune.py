"""What retention takes of events, and what it must leave."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask
from django_celery_results.models import TaskResult

from config import retention
from runs.models import NIL, ProcessedEvent, Run
from runs.retention.sweep import set_out_afresh
from runs.states import RunStatus
from tests.support.old_rows import ago, old_event, old_run
from tests.support.triggers import hold, make_paused_trigger, make_trigger
from triggers.accept import Incoming, accept, builtin_source
from triggers.exceptions import PayloadRemoved
from triggers.models import (
    Decision,
    DetectorState,
    Event,
    MetricDetector,
    MetricEpisode,
    MetricSample,
    MetricSeries,
    RateUse,
    Redelivery,
    Redispatch,
    Revision,
    Schedule,
    Skip,
    Source,
    Window,
)
from triggers.replays.replay import replay

pytestmark = pytest.mark.django_db


def pruned() -> dict[str, int]:
    return {one.name: one.rows for one in retention.prune() if one.rows}


def test_an_old_event_loses_its_payload_and_is_kept() -> None:
    event = old_event(31)

    assert pruned() == {"events.payload": 1}

    row = Event.objects.get(pk=event.pk)
    assert (row.data, row.body, row.headers, row.type) == (None, None, None, "visitor.came")
    assert row.payload_removed_at is not None


def test_a_young_event_keeps_its_payload() -> None:
    event = old_event(29)

    assert pruned() == {}

    assert Event.objects.get(pk=event.pk).data == {"name": "Ada"}


def test_an_older_event_goes_with_all_that_hangs_on_it() -> None:
    event = old_event(91)
    old_run(event, days=91)
    Decision.objects.create(event=event, trigger=make_trigger(), replay_id=NIL, outcome="overlap")
    Redelivery.objects.create(event=event, body_sha256="", differs=False)
    Redispatch.objects.create(event=event, replay_id=uuid4(), by="test", dispatched_at=ago(days=90))

    pruned()

    for model in (Event, Run, Decision, Redelivery, Redispatch, ProcessedEvent):
        assert not model.objects.exists(), model


def test_skips_and_revisions_are_kept_as_long_as_events() -> None:
    schedule = make_schedule()
    for days in (89, 91):
        skip = Skip.objects.create(schedule=schedule, reason="missed", first=ago(days=days), last=ago(days=days))
        Skip.objects.filter(pk=skip.pk).update(created_at=ago(days=days))
        Revision.objects.create(schedule=schedule, until=ago(days=days), by="ada", state={})

    assert pruned() == {"skips": 1, "revisions": 1}

    assert Skip.objects.get().created_at > ago(days=90)
    assert Revision.objects.get().until > ago(days=90)


def test_revisions_that_beat_still_reads_are_kept() -> None:
    schedule = make_schedule(stale=True, accounted_until=ago(days=100))
    Revision.objects.create(schedule=schedule, until=ago(days=95), by="ada", state={})

    assert pruned() == {}


def make_schedule(**columns: Any) -> Schedule:
    task = PeriodicTask.objects.create(
        name="digest", task="t", interval=IntervalSchedule.objects.create(every=1, period="days")
    )
    Schedule.objects.filter(task=task).update(**{"stale": False, **columns})
    return Schedule.objects.get(task=task)


# Who still needs an event


def undispatched(event: Event) -> None:
    Event.objects.filter(pk=event.pk).update(dispatched_at=None)


def held(event: Event) -> None:
    hold(event, make_paused_trigger())


def replayed(event: Event) -> None:
    Redispatch.objects.create(event=event, replay_id=uuid4(), by="test")


def collected(event: Event) -> None:
    trigger = make_trigger()
    Window.objects.create(
        trigger=trigger, key=f"{trigger.pk}:", replay_id=NIL, event_ids=[event.id], root_id=event.id, depth=0,
        due_at=timezone.now(),
    )  # fmt: skip


def running(event: Event) -> None:
    old_run(event, status=RunStatus.WAITING)


def taken_along(event: Event) -> None:
    """By a run that has the id of another event."""
    other = old_event(2)
    run = old_run(other, status=RunStatus.QUEUED, event_ids=[other.id, event.id])
    Decision.objects.create(event=event, trigger=make_trigger(), replay_id=NIL, outcome="joined", run_id=run.id)


def requeueable(event: Event) -> None:
    old_run(event, days=1, status=RunStatus.FAILED)


@pytest.mark.parametrize("need", [undispatched, held, replayed, collected, running, taken_along, requeueable])
def test_an_event_that_is_needed_keeps_all_however_old(need: Callable[[Event], None]) -> None:
    event = old_event(1000)
    need(event)

    pruned()

    assert Event.objects.get(pk=event.pk).data == {"name": "Ada"}


def test_a_held_event_is_deleted_after_its_decision_is_dropped() -> None:
    event = old_event(1000)
    held(event)
    pruned()
    Decision.objects.update(outcome="dropped")

    set_out_afresh(every=timedelta())
    pruned()

    assert not Event.objects.exists()


def test_the_events_that_a_live_run_stems_from_are_kept() -> None:
    root = old_event(200)
    cause = old_event(150, root_id=root.id, cause_event_id=root.id)
    event = old_event(1, root_id=root.id, cause_event_id=cause.id)
    stranger = old_event(150)
    old_run(event, status=RunStatus.QUEUED, root_id=root.id)

    pruned()

    assert set(Event.objects.values_list("id", flat=True)) == {root.id, cause.id, event.id}
    assert Event.objects.get(pk=root.pk).data is None
    assert stranger.id not in Event.objects.values_list("id", flat=True)


def test_an_events_payload_waits_for_those_of_its_runs() -> None:
    """Else the event would be passed over, and looked at again in a week only."""
    event = old_event(31)
    old_run(event, days=31)
    steps = {step.name: step for step in retention.steps()}

    assert steps["events.payload"].batch().rows == 0
    steps["runs.payload"].batch()

    assert steps["events.payload"].batch().rows == 1


# What the loss means


def redelivery(event: Event) -> Incoming:
    return Incoming(source_id=event.source_id, ce_source=event.ce_source, ce_id=event.ce_id, type=event.type)


def test_a_redelivery_after_the_loss_of_the_payload_is_still_a_duplicate() -> None:
    event = old_event(31)
    pruned()

    [accepted] = accept([redelivery(event)])

    assert (accepted.event_id, accepted.duplicate) == (event.id, True)


def test_a_redelivery_after_the_horizon_is_a_new_event() -> None:
    event = old_event(91)
    pruned()

    [accepted] = accept([redelivery(event)])

    assert not accepted.duplicate
    assert accepted.event_id != event.id


def test_the_ledger_stays_as_long_as_its_event() -> None:
    event = old_event(89)
    old_run(event, days=89)

    pruned()

    assert ProcessedEvent.objects.get().event_id == event.id


def test_an_event_without_its_payload_is_not_replayed() -> None:
    event = old_event(31)
    pruned()

    with pytest.raises(PayloadRemoved) as refusal:
        replay(event, by="test")

    assert refusal.value.status == "payload_removed"
    assert not Redispatch.objects.exists()


# The rest


def test_rates_that_look_back_no_further_go_and_those_that_do_stay() -> None:
    make_trigger(policy={"rate": "10/7d"})
    RateUse.objects.create(key="a", starts=[ago(days=9), ago(days=8)])
    RateUse.objects.create(key="b", starts=[ago(days=9), ago(days=6)])

    pruned()

    assert [use.key for use in RateUse.objects.all()] == ["b"]


def test_results_of_tasks_and_sessions_that_are_over_go() -> None:
    for days in (6, 8):
        result = TaskResult.objects.create(task_id=str(days))
        TaskResult.objects.filter(pk=result.pk).update(date_done=ago(days=days))
    Session.objects.create(session_key="over", expire_date=ago(days=1))
    Session.objects.create(session_key="open", expire_date=timezone.now() + timedelta(days=1))

    assert pruned() == {"results": 1, "sessions": 1}


def test_the_prune_command_counts_with_dry_run_and_deletes_without() -> None:
    old_event(31)

    def prune(*arguments: str) -> Any:
        out = StringIO()
        call_command("prune", "--json", *arguments, stdout=out)
        return {one["name"]: one["rows"] for one in json.loads(out.getvalue()) if one["rows"]}

    assert prune("--dry-run") == {"events.payload": 1}
    assert prune("--budget", "10s") == {"events.payload": 1}
    assert prune("--afresh") == {}


# Beside others


@contextmanager
def neighbour() -> Iterator[psycopg.Connection[Any]]:
    """Another session, in a transaction."""
    with psycopg.connect(**{**connection.get_connection_params(), "cursor_factory": psycopg.Cursor}) as other:
        yield other


@pytest.mark.django_db(transaction=True)
def test_a_locked_row_is_skipped_without_waiting() -> None:
    event = old_event(31)

    with neighbour() as other:
        other.execute("SELECT FROM triggers_event WHERE id = %s FOR UPDATE", [event.id])
        assert pruned() == {}
    set_out_afresh(every=timedelta())

    assert pruned() == {"events.payload": 1}


@pytest.mark.django_db(transaction=True)
def test_prune_keeps_the_payload_of_an_event_whose_replay_is_uncommitted() -> None:
    event = old_event(31)
    is_replayed, go_on = threading.Event(), threading.Event()

    def ask() -> None:
        with transaction.atomic():
            replay(event, by="test")
            is_replayed.set()
            go_on.wait(20)
        connection.close()

    asking = threading.Thread(target=ask)
    asking.start()
    assert is_replayed.wait(20)
    assert pruned() == {}  # it is not committed yet, so only its lock shows it
    go_on.set()
    asking.join(20)
    set_out_afresh(every=timedelta())

    assert pruned() == {}
    assert Event.objects.get(pk=event.pk).data == {"name": "Ada"}


@pytest.mark.django_db(transaction=True)
def test_two_who_prune_at_once_take_each_row_once() -> None:
    events = [old_event(91 + number) for number in range(40)]
    sizes: list[int] = []

    def prune_in_small_batches() -> None:
        step = next(step for step in retention.steps() if step.name == "events")
        try:
            while (removed := step.batch(3)).more:
                sizes.append(removed.rows)
            sizes.append(removed.rows)
        finally:
            connection.close()

    next(step for step in retention.steps() if step.name == "runs.payload").batch()
    both = [threading.Thread(target=prune_in_small_batches) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(30)

    assert sum(sizes) == len(events)
    assert not Event.objects.exists()


# What it costs

MANY = 3_000
FILL = [
    """
    INSERT INTO triggers_event (id, source_id, ce_source, ce_id, type, subject, data, data_error, body, headers, body_sha256,
                                received_at, dispatched_at, root_id, depth)
    SELECT id, %(source)s, 'x', id::text, 't', '', '{}', '', 'x', '{}', '', at, at, id, 0 FROM (
      SELECT at, (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(md5(at::text), 1, 3)
                  || '8' || substr(md5(at::text), 1, 15))::uuid AS id
      FROM (SELECT now() - interval '91 days' - number * interval '1 minute' AS at
            FROM generate_series(1, %(many)s) number) moments) ids
    """,
    """
    INSERT INTO runs_run (id, queue, agent, version, trigger, trigger_id, event_ids, policy, priority, replay_id, root_id, depth,
                          status, status_reason, attempt, epoch, key_limit, error, created_at, finished_at)
    SELECT (left(replace(id::text, '-', ''), 12) || '8' || substr(md5(id::text), 1, 3) || '8' || substr(md5(id::text), 1, 15))::uuid,
      'default', 'a', '', 't', gen_random_uuid(), ARRAY[id], '{}', 5, %(nil)s, id, 0, 'succeeded', '', 1, 1, 1, '', received_at,
      received_at FROM triggers_event
    """,
    """
    INSERT INTO runs_attemptrow (run_id, epoch, number, started_at, ended_at, outcome, error, traceback)
    SELECT id, 1, 1, created_at, created_at, 'succeeded', '', '' FROM runs_run
    """,
    """
    INSERT INTO runs_step (run_id, key, position, is_keyed, effect, status, epoch, attempts, error, error_kind, is_permanent, ended_at)
    SELECT id, 'step:' || number, number, true, 'read', 'done', 1, 1, '', '', false, created_at
    FROM runs_run, generate_series(1, 3) number
    """,
    """
    INSERT INTO runs_wait (run_id, key, position, is_keyed, kind, status, event_type, match_shape, match_hash, event_id, children, ended_at)
    SELECT id, 'approval#1', 4, false, 'approval', 'done', '', '', '', root_id, '{}', created_at FROM runs_run
    """,
    """
    INSERT INTO runs_approval (id, wait_id, question, detail, digest, on_expiry, decision, decided_digest, decided_by, reason)
    SELECT gen_random_uuid(), id, '', '', '', 'deny', '', '', '', '' FROM runs_wait
    """,
    """
    INSERT INTO runs_processedevent (event_id, consumer, replay_id, run_id)
    SELECT root_id, 't', replay_id, id FROM runs_run
    """,
    """
    INSERT INTO triggers_decision (event_id, trigger_id, replay_id, outcome, reason)
    SELECT id, %(trigger)s, %(nil)s, 'overlap', '' FROM triggers_event
    """,
]
TABLES = [
    "triggers_event", "triggers_decision", "runs_run", "runs_attemptrow", "runs_step", "runs_wait", "runs_approval",
    "runs_processedevent",
]  # fmt: skip


def test_a_batch_reads_the_rows_it_meets_and_no_table_whole() -> None:
    parameters: dict[str, Any] = {
        "source": builtin_source("cli"),
        "trigger": make_trigger().pk,
        "nil": NIL,
        "many": MANY,
    }
    with connection.cursor() as cursor:
        for statement in FILL:
            cursor.execute(statement, parameters)
        cursor.execute(f"ANALYZE {', '.join(TABLES)}")
        before = scans(cursor)

        for _ in range(2):
            for step in retention.steps():
                if step.name.startswith(("runs", "events")):
                    assert step.batch(MANY // 3).rows == MANY // 3, step.name

        assert scans(cursor) == before


def scans(cursor: Any) -> dict[str, int]:
    """How often each table was read from end to end in this transaction."""
    cursor.execute("SELECT relname, seq_scan FROM pg_stat_xact_user_tables WHERE relname = ANY(%s)", [TABLES])
    return dict(cursor.fetchall())


def test_samples_are_thinned_and_deleted_and_episodes_and_disarmed_detectors_go_as_late_as_events() -> None:
    source = Source.objects.create(slug="load", kind="pushed")
    series = MetricSeries.objects.create(source=source, name="disk")
    base = ago(days=3).replace(minute=0, second=0, microsecond=0)
    for at in (base, base + timedelta(minutes=4), base + timedelta(minutes=6), ago(days=1), ago(days=91)):
        MetricSample.objects.create(series=series, at=at, value=1)
    gone = MetricDetector.objects.create(source=source, name="missing", disarmed_at=ago(days=91))
    kept = MetricDetector.objects.create(source=source, name="missing")
    drift = Source.objects.create(slug="state", kind="drift")
    silenced = MetricDetector.objects.create(source=drift, name="difference", disarmed_at=ago(days=91))
    whose = {"detector": kept, "series": series, "since": ago(days=92), "opened_at": ago(days=92)}
    MetricEpisode.objects.create(id=uuid4(), closed_at=ago(days=91), **whose)
    MetricEpisode.objects.create(id=uuid4(), **whose)

    past = MetricSeries.objects.create(source=source, name="gone", last_at=ago(days=91))
    DetectorState.objects.create(detector=kept, series=past, seen_at=ago(days=91))
    MetricEpisode.objects.create(id=uuid4(), **{**whose, "series": past})  # nothing will close it
    DetectorState.objects.create(detector=kept, series=series, seen_at=ago(days=91))  # its episode is open

    assert pruned() == {
        "samples.thinned": 1, "samples": 1, "episodes": 2, "detectors.states": 1, "series": 1, "detectors": 1,
    }  # fmt: skip

    assert MetricSample.objects.filter(at=base + timedelta(minutes=4)).exists() and MetricSample.objects.count() == 3
    assert MetricEpisode.objects.get().closed_at is None
    assert not MetricDetector.objects.filter(pk=gone.pk).exists()
    assert MetricDetector.objects.filter(pk=silenced.pk).exists()  # else the next sample would arm it
    assert DetectorState.objects.get().series == series == MetricSeries.objects.get()
