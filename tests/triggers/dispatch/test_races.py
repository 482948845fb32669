"""The dispatcher beside workers that claim, and neighbours that lock."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.db.models import QuerySet

from agents import Retry
from runs import claim as claiming
from runs import enqueue as enqueueing
from runs import keys
from runs.actions.cancel import cancel
from runs.chores import timers
from runs.claim import Claim, claim_next
from runs.db.sql import execute
from runs.models import Run, Worker
from runs.transitions import stop
from tests.hot_path.recorder import recording
from tests.support.triggers import make_event, make_trigger
from tests.triggers.dispatch.test_overlap import arrive, end, run_of, start
from triggers.dispatch import loop
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.models import Event, Trigger

pytestmark = pytest.mark.django_db(transaction=True)

Overlap = Trigger.Overlap


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """A dispatcher's session, which waits for no lock for long."""
    execute("SELECT set_config('lock_timeout', '300ms', false)")
    yield
    execute("SELECT set_config('lock_timeout', '0', false)")


class Elsewhere(threading.Thread):
    """Does it on a connection of its own."""

    def __init__(self, action: Callable[[], Any]) -> None:
        super().__init__()
        self.action = action
        self.start()

    def run(self) -> None:
        try:
            self.done = self.action()
        finally:
            connection.close()

    def result(self) -> Any:
        self.join(20)
        assert not self.is_alive()
        return self.done


@contextmanager
def locked(rows: QuerySet[Any]) -> Iterator[None]:
    """A neighbour holds these rows, idle in its transaction."""
    is_locked, over = threading.Event(), threading.Event()

    @transaction.atomic
    def hold() -> None:
        list(rows.select_for_update())
        is_locked.set()
        over.wait(20)

    neighbour = Elsewhere(hold)
    assert is_locked.wait(10)
    try:
        yield
    finally:
        over.set()
        neighbour.result()


def test_events_that_join_a_run_while_it_is_claimed_are_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim's statement has begun, and sees the run as it was before."""
    make_trigger(overlap=Overlap.QUEUE_ONE)
    first = arrive()
    worker = Worker.objects.create(id=uuid4(), kind="worker", host="h", pid=1, version="1", concurrency=1)
    slowly = claiming.CLAIM_FIRST.replace(
        "AND worker.stopped_at IS NULL", "AND worker.stopped_at IS NULL AND pg_sleep(1) IS NOT NULL", 1
    )
    monkeypatch.setattr(claiming, "CLAIM_FIRST", slowly)
    claimer = Elsewhere(lambda: claim_next(worker.id, "default", {"greeter": "1"}))
    threading.Event().wait(0.4)

    second = arrive()

    claimed: Claim = claimer.result()
    assert claimed.event_ids == [first.id, second.id]


def test_an_event_does_not_join_a_run_that_was_claimed_while_it_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    make_trigger(overlap=Overlap.QUEUE_ONE)
    first = arrive()
    slowly = enqueueing.UNSTARTED.replace("WHERE key =", "WHERE pg_sleep(1) IS NOT NULL AND key =")
    monkeypatch.setattr(enqueueing, "UNSTARTED", slowly)
    dispatching = Elsewhere(arrive)
    threading.Event().wait(0.4)

    claimed = start()

    second = dispatching.result()
    assert claimed.event_ids == [first.id]
    assert [run.event_ids for run in Run.objects.filter(ready_at=None, status="queued")] == [[second.id]]


def test_a_locked_run_that_is_to_be_replaced_keeps_no_other_event_from_dispatch() -> None:
    make_trigger(overlap=Overlap.CANCEL_PREVIOUS)
    make_trigger("other", types=["other.*"])
    arrive()
    running = start()

    with locked(Run.objects.all()):
        events = [make_event(), make_event(type="other.came"), make_event()]
        assert dispatch(Rules()).left == 2
        assert [run_of(event) is not None for event in events] == [False, True, False]

    dispatch(Rules())
    end(running)
    assert start().event_ids == [events[2].id]


def test_a_lock_that_outlasts_the_dispatchers_patience_keeps_it_from_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rescue among it: what holds the lock may be a frozen worker."""
    make_trigger()
    event = make_event()
    rescued: list[bool] = []

    def rescue() -> int:
        rescued.append(True)
        return 0

    busy = loop.Dispatcher()
    monkeypatch.setattr(busy.chores.rescuer, "rescue", rescue)
    Worker.objects.create(id=uuid4(), kind="worker", host="h", pid=1, version="1", concurrency=1)
    Worker.objects.update(seen_at="2020-01-01T00:00:00Z")

    with locked(Event.objects.filter(pk=event.pk)):
        busy.look()

    assert rescued
    assert run_of(event) is None
    busy.look()
    assert run_of(event)


def test_replacing_many_takes_no_more_statements_than_replacing_one() -> None:
    make_trigger()
    statements = []
    for blocked in (1, 30):
        Trigger.objects.update(overlap=Overlap.QUEUE)
        for _ in range(blocked + 1):
            make_event()
        dispatch(Rules())
        Trigger.objects.update(overlap=Overlap.CANCEL_PREVIOUS)
        with recording() as recorder:
            last = arrive()
        statements.append(sum("runs_run" in sent.text for sent in recorder.sent))
        assert [run.event_ids for run in Run.objects.live()] == [[last.id]]

    assert statements[0] == statements[1]


def test_cancel_previous_replaces_very_many_runs_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that takes long is ended by the stand-by, and would never get done."""
    monkeypatch.setattr(stop, "MOST_AT_ONCE", 5)
    make_trigger(overlap=Overlap.QUEUE)
    for _ in range(12):
        make_event()
    dispatch(Rules())
    Trigger.objects.update(overlap=Overlap.CANCEL_PREVIOUS)
    last, rules = make_event(), Rules()

    left = []
    while not (batch := dispatch(rules)).dispatched:
        left.append((batch.left, Run.objects.live().count()))

    assert left == [(1, 7), (1, 2)]
    assert [run.event_ids for run in Run.objects.live()] == [[last.id]]


def test_a_locked_run_keeps_no_other_from_lining_up() -> None:
    make_trigger(overlap=Overlap.QUEUE, key_limit=2)
    for _ in range(2):
        arrive()
        end(start(), Retry(after=0))

    first, second = Run.objects.order_by("seq")
    with locked(Run.objects.filter(pk=first.pk)):
        timers.wake_due(10)

    assert start().run_id == second.pk


def test_a_cancel_that_waits_for_a_key_holds_no_row_meanwhile() -> None:
    """Whoever holds the key may be waiting for that row."""
    make_trigger(overlap=Overlap.QUEUE)
    arrive()
    running = start()
    has_key, over = threading.Event(), threading.Event()

    @transaction.atomic
    def hold() -> None:
        keys.lock(str(running.key))
        has_key.set()
        over.wait(20)

    neighbour = Elsewhere(hold)
    assert has_key.wait(10)
    cancelling_it = Elsewhere(lambda: cancel(running.run_id, by="test"))
    threading.Event().wait(0.3)

    with transaction.atomic():
        assert Run.objects.select_for_update(nowait=True).get().cancel_requested_at is None
    over.set()
    neighbour.result()
    assert cancelling_it.result().cancel_requested_at


def test_triggers_that_could_not_be_read_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = Rules()
    event = make_event()
    dispatch(rules)
    make_trigger(types=["*"])
    rules.have_changed()
    with monkeypatch.context() as broken:
        broken.setattr("triggers.dispatch.rules.rule_of", lambda trigger: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rules.current()

    assert rules.current().candidates("cli", event.type)
