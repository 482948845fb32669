"""One key, one policy, one limit: what a new event does, whatever has become of the run before it."""

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction

from agents import Permanent, Retry
from runs.actions.cancel import cancel
from runs.actions.requeue import requeue
from runs.attempt.failure import outcome_of
from runs.chores import timers
from runs.claim import Claim, claim_next
from runs.enqueue import EVENTS_PER_RUN
from runs.models import ProcessedEvent, Run, Worker
from runs.states import RunStatus
from runs.transitions.leave import leave
from runs.transitions.outcome import Outcome
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.models import Decision, Event, Trigger
from triggers.replays.replay import replay

pytestmark = pytest.mark.django_db

Overlap = Trigger.Overlap


def arrive(data: Any = None, type: str = "visitor.came") -> Event:
    """An event comes in and is dispatched."""
    event = make_event(data=data, type=type)
    dispatch(Rules())
    return event


def claim() -> Claim | None:
    worker = Worker.objects.create(id=uuid4(), kind="worker", host="h", pid=1, version="1", concurrency=1)
    claimed = claim_next(worker.id, "default", {"greeter": "1"})
    with connection.cursor() as cursor:  # all play on one session here
        cursor.execute("SET application_name = 'test'")
    return claimed


def start() -> Claim:
    claimed = claim()
    assert claimed is not None
    return claimed


@transaction.atomic
def end(claimed: Claim, error: Exception | None = None) -> None:
    leave(claimed.ticket, outcome_of(error, claimed) if error else Outcome(status=RunStatus.SUCCEEDED))


def run_of(event: Event) -> Run | None:
    return Run.objects.filter(event_ids__contains=[event.id]).first()


# What may have become of the run before


def is_ready(first: Run) -> None:
    pass


def is_running(first: Run) -> None:
    start()


def backs_off(first: Run) -> None:
    end(start(), Retry(after=3600))


def waits_and_holds_its_key(first: Run) -> None:
    start()
    Run.objects.filter(pk=first.pk).update(status="waiting", pid=None)


def waits_without_its_key(first: Run) -> None:
    start()
    Run.objects.filter(pk=first.pk).update(status="waiting", pid=None, slot=None)


def is_being_cancelled(first: Run) -> None:
    start()
    cancel(first.pk, by="test")


def has_failed(first: Run) -> None:
    end(start(), Permanent("broken"))


def was_requeued(first: Run) -> None:
    has_failed(first)
    requeue(first.pk, by="test")


def was_cancelled(first: Run) -> None:
    cancel(first.pk, by="test")


STARTS, WAITS, SKIPPED, JOINS = "starts", "waits", "skipped", "joins"
REPLACES = "starts, the run before is cancelled"
STOPS = "waits, the run before gets a cancel request"

#                          allow   skip     queue_one  queue   cancel_previous
TABLE = {
    is_ready:                (STARTS, SKIPPED, JOINS,     WAITS,  REPLACES),
    is_running:              (STARTS, SKIPPED, WAITS,     WAITS,  STOPS),
    backs_off:               (STARTS, SKIPPED, WAITS,     WAITS,  REPLACES),
    waits_and_holds_its_key: (STARTS, SKIPPED, WAITS,     WAITS,  REPLACES),
    waits_without_its_key:   (STARTS, STARTS,  STARTS,    STARTS, REPLACES),
    is_being_cancelled:      (STARTS, SKIPPED, WAITS,     WAITS,  STOPS),
    has_failed:              (STARTS, STARTS,  STARTS,    STARTS, STARTS),
    was_requeued:            (STARTS, SKIPPED, WAITS,     WAITS,  REPLACES),
    was_cancelled:           (STARTS, STARTS,  STARTS,    STARTS, STARTS),
}  # fmt: skip
OVERLAPS = (Overlap.ALLOW, Overlap.SKIP, Overlap.QUEUE_ONE, Overlap.QUEUE, Overlap.CANCEL_PREVIOUS)
CELLS = [
    pytest.param(overlap, before, expected, id=f"{overlap}-{before.__name__}")
    for before, row in TABLE.items()
    for overlap, expected in zip(OVERLAPS, row, strict=True)
]


@pytest.mark.parametrize(("overlap", "before", "expected"), CELLS)
def test_a_new_event_meets_the_run_before(overlap: Overlap, before: Callable[[Run], None], expected: str) -> None:
    make_trigger(overlap=overlap)
    first = run_of(arrive())
    assert first is not None
    before(first)

    event = arrive()

    assert what_became_of(event, first) == expected


def what_became_of(event: Event, first: Run) -> str:
    run = run_of(event)
    first.refresh_from_db()
    decision = Decision.objects.filter(event=event).first()
    if run is None:
        assert decision is not None
        assert (decision.outcome, decision.run_id) == ("overlap", first.pk)
        return SKIPPED
    if run.pk == first.pk:
        assert decision is not None
        assert (decision.outcome, decision.run_id) == ("joined", first.pk)
        return JOINS
    assert decision is None
    if run.ready_at:
        return REPLACES if first.status == "cancelled" and "the next event" in first.status_reason else STARTS
    by_event = first.cancel_requested_at and Trigger.objects.filter(overlap=Overlap.CANCEL_PREVIOUS).exists()
    return STOPS if by_event else WAITS


@pytest.mark.parametrize("overlap", [Overlap.QUEUE, Overlap.QUEUE_ONE, Overlap.CANCEL_PREVIOUS])
@pytest.mark.parametrize("error", [None, Permanent("broken")])
def test_a_waiting_run_starts_when_the_run_before_it_has_ended(overlap: Overlap, error: Exception | None) -> None:
    make_trigger(overlap=overlap)
    arrive()
    running = start()
    event = arrive()
    assert claim() is None

    end(running, error)

    assert start().event_ids == [event.id]


def test_queue_keeps_the_order_of_arrival_through_a_backoff() -> None:
    make_trigger(overlap=Overlap.QUEUE)
    events = [arrive() for _ in range(3)]
    end(start(), Retry(after=0))
    assert claim() is None, "a backoff keeps its place"

    seen: list[UUID] = []
    timers.wake_due(10)
    while claimed := claim():
        seen += claimed.event_ids
        end(claimed)

    assert seen == [event.id for event in events]


# queue_one


def test_queue_one_has_one_run_wait_for_all_that_came_meanwhile() -> None:
    make_trigger(overlap=Overlap.QUEUE_ONE, input={"n": "event.data.n"})
    arrive({"n": 0})
    running = start()

    events = [arrive({"n": n}) for n in range(1, 4)]

    assert Run.objects.count() == 2
    end(running)
    waited = start()
    assert waited.event_ids == [event.id for event in events]
    assert waited.input == {"n": 3}, "that of the newest"
    joined = Decision.objects.order_by("event__seq").values_list("event", "outcome", "run_id")
    assert list(joined) == [(event.id, "joined", waited.run_id) for event in events[1:]]


def test_queue_one_joins_within_one_batch_too() -> None:
    make_trigger(overlap=Overlap.QUEUE_ONE)
    events = [make_event() for _ in range(5)]

    dispatch(Rules())

    assert Run.objects.get().event_ids == [event.id for event in events]
    assert Decision.objects.filter(outcome="joined").count() == 4


def test_an_event_never_joins_a_run_that_a_worker_is_claiming() -> None:
    make_trigger(overlap=Overlap.QUEUE_ONE)
    arrive()
    claimed = start()

    event = arrive()

    assert event.id not in claimed.event_ids
    run = run_of(event)
    assert run is not None
    assert run.pk != claimed.run_id


def test_an_event_dispatched_twice_joins_once() -> None:
    make_trigger(overlap=Overlap.QUEUE_ONE)
    events = [arrive() for _ in range(2)]
    for _ in range(2):
        Event.objects.update(dispatched_at=None)
        dispatch(Rules())

    end(start())

    assert Run.objects.get().event_ids == [event.id for event in events]
    assert ProcessedEvent.objects.count() == 2


def test_a_replayed_event_joins_no_run_of_the_first_time() -> None:
    make_trigger(overlap=Overlap.QUEUE_ONE)
    event = arrive()

    replay(event, by="test")
    dispatch(Rules())

    assert [run.event_ids for run in Run.objects.all()] == [[event.id], [event.id]]


def test_a_run_takes_only_so_many_events_along() -> None:
    make_trigger(overlap=Overlap.QUEUE_ONE)
    first = run_of(arrive())
    assert first is not None
    Run.objects.filter(pk=first.pk).update(event_ids=[uuid4() for _ in range(EVENTS_PER_RUN)])

    event = arrive()

    run = run_of(event)
    assert run is not None
    assert (run.pk != first.pk, run.ready_at) == (True, None)


def test_every_event_of_a_run_is_in_the_ledger() -> None:
    make_trigger(overlap=Overlap.QUEUE_ONE)
    events = [make_event() for _ in range(3)]
    dispatch(Rules())

    end(start())

    with connection.cursor() as cursor:
        cursor.execute("SELECT event_id FROM runs_processedevent")
        assert {row[0] for row in cursor.fetchall()} == {event.id for event in events}


# cancel_previous


def test_cancel_previous_leaves_the_latest_alone() -> None:
    make_trigger(overlap=Overlap.CANCEL_PREVIOUS)
    arrive()
    running = start()

    events = [make_event() for _ in range(3)]
    dispatch(Rules())
    last = arrive()

    statuses = {id: status for [id], status in Run.objects.values_list("event_ids", "status")}
    assert [statuses[event.id] for event in events] == ["cancelled"] * 3
    assert statuses[last.id] == "queued"
    assert claim() is None, "the one that runs is still stopping"
    end(running)
    assert start().event_ids == [last.id]


def test_cancel_previous_replaces_within_its_key_alone() -> None:
    make_trigger(overlap=Overlap.CANCEL_PREVIOUS, key="event.data.who")
    ada = arrive({"who": "ada"})
    bob = arrive({"who": "bob"})

    arrive({"who": "ada"})

    assert [run_of(event).status for event in (ada, bob)] == ["cancelled", "queued"]  # type: ignore[union-attr]


# Limits above 1


@pytest.mark.parametrize("overlap", [Overlap.QUEUE, Overlap.SKIP, Overlap.QUEUE_ONE])
def test_a_key_has_as_many_runs_at_once_as_its_limit(overlap: Overlap) -> None:
    make_trigger(overlap=overlap, key_limit=2)
    running = []
    for _ in range(2):
        arrive()
        running.append(start())

    third = arrive()

    assert claim() is None
    assert (run_of(third) is None) == (overlap == Overlap.SKIP)
    end(running[0])
    claimed = claim()
    assert (claimed and claimed.event_ids) == (None if overlap == Overlap.SKIP else [third.id])


def test_a_backoff_gives_its_place_to_another_where_there_are_several() -> None:
    make_trigger(overlap=Overlap.QUEUE, key_limit=2)
    events = [arrive() for _ in range(3)]
    first, _ = start(), start()
    assert claim() is None

    end(first, Retry(after=0))
    assert start().event_ids == [events[2].id]

    timers.wake_due(10)
    assert claim() is None, "its time has come, but no place is free"
    assert Run.objects.get(pk=first.run_id).due_at is None


def test_a_retried_run_gets_a_slot_of_its_key_again() -> None:
    make_trigger(overlap=Overlap.QUEUE, key_limit=2)
    arrive()
    end(start(), Retry(after=0))

    timers.wake_due(10)

    assert start().attempt == 2


def test_a_limit_that_was_raised_is_used_by_those_who_wait() -> None:
    trigger = make_trigger(overlap=Overlap.QUEUE)
    for _ in range(4):
        arrive()
    start()
    trigger.key_limit = 3
    trigger.save()
    Run.objects.filter(status="queued").update(key_limit=3)

    assert timers.StalledKeys().mend() == 2

    assert start()
    assert start()
    assert claim() is None


def test_after_a_limit_is_lowered_no_run_starts_until_fewer_are_live() -> None:
    trigger = make_trigger(overlap=Overlap.QUEUE, key_limit=3)
    for _ in range(3):
        arrive()
    running = [start() for _ in range(3)]
    trigger.key_limit = 1
    trigger.save()
    last = arrive()

    for claimed in running:
        assert claim() is None
        end(claimed)

    assert start().event_ids == [last.id]


def test_no_key_is_taken_for_stalled_while_its_places_are_taken() -> None:
    make_trigger(overlap=Overlap.QUEUE, key="event.data.who", key_limit=2)
    for who in ("ada", "bob", "ada", "ada", "bob", "bob", "cy"):
        arrive({"who": who})
    stalled = timers.StalledKeys()
    stalled.KEYS_A_LOOK = 2

    assert [stalled.mend() for _ in range(4)] == [0, 0, 0, 0]


def test_a_delayed_run_that_is_cancelled_lets_runs_behind_it_start() -> None:
    trigger = make_trigger(overlap=Overlap.QUEUE, policy={"rate": "1/h"})
    arrive()
    put_off = run_of(arrive())
    assert put_off is not None
    trigger.policy = {}
    trigger.save()
    behind = arrive()
    end(start())
    assert claim() is None

    cancel(put_off.pk, by="test")

    assert start().event_ids == [behind.id]


# Requeue and its key


def test_a_requeued_run_lines_up_behind_those_who_wait() -> None:
    make_trigger(overlap=Overlap.QUEUE)
    events = [arrive() for _ in range(2)]
    failed = start()
    end(failed, Permanent("broken"))

    requeue(failed.run_id, by="test")

    order: list[UUID] = []
    while claimed := claim():
        order += claimed.event_ids
        end(claimed)
    assert order == [events[1].id, events[0].id]
