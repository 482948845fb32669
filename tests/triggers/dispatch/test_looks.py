"""One statement finds out what there is to do; only where there is something, the lead is taken and events are read."""

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from runs.chores.rare import Rare
from runs.models import Incident
from runs.queues.stayers import CLAIMED, LOCK
from tests.support.runs import make_run
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch import late, loop
from triggers.dispatch.late import AT_MOST
from triggers.dispatch.looks import Looks, Wide
from triggers.dispatch.loop import RING_EVERY, Dispatcher
from triggers.dispatch.pace import Pace
from triggers.matching import pending
from triggers.models import Event, Redispatch, Source
from triggers.sources.databases.watch import Watcher

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def dispatcher(settings: Any) -> Iterator[Dispatcher]:
    """It has looked once, so that no alarm may have to end and its switches are armed; its chores are done."""
    dispatcher = Dispatcher()
    dispatcher.leadership.begin()
    dispatcher.look()
    dispatcher.leadership.release()
    dispatcher.look()
    yield dispatcher
    dispatcher.leadership.release()
    connection.close()


def statements(dispatcher: Dispatcher) -> list[str]:
    with CaptureQueriesContext(connection) as queries:
        dispatcher.look()
        dispatcher.leadership.release()
    return [query["sql"] for query in queries]


def wanted_parameters() -> dict[str, Any]:
    given = connection.get_connection_params()
    return {name: given[name] for name in ("host", "port", "user", "password", "dbname") if name in given}


def test_a_look_that_finds_nothing_is_one_statement(dispatcher: Dispatcher) -> None:
    [sent] = statements(dispatcher)

    assert "triggers_window" in sent and "runs_wait" in sent


def test_what_is_rare_is_asked_for_in_the_same_statement_which_also_renews_the_row_of_the_process(
    dispatcher: Dispatcher,
) -> None:
    dispatcher.presence.renew()
    dispatcher.pace.may_ask_at = dispatcher.presence.renewed_at = float("-inf")

    [sent] = statements(dispatcher)

    assert all(part in sent for part in ("triggers_window", "runs_wait", "runs_incident", "UPDATE runs_worker"))
    dispatcher.presence.close()


def test_the_statement_that_asks_for_what_is_rare_notes_that_the_dispatcher_listens(dispatcher: Dispatcher) -> None:
    dispatcher.pace.may_ask_at = dispatcher.leadership.noted_at = float("-inf")
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval('triggers_listens_until', 2)")

    assert len(statements(dispatcher)) == 1

    with connection.cursor() as cursor:
        cursor.execute("SELECT last_value > extract(epoch FROM clock_timestamp()) * 1000 FROM triggers_listens_until")
        assert cursor.fetchone() == (True,)


def test_an_incident_whose_time_has_come_is_told_at_the_next_safety_look(dispatcher: Dispatcher) -> None:
    Incident.objects.create(
        kind=Incident.Kind.AGENT,
        subject="clerk",
        name="clerk",
        opened_at=timezone.now(),
        tell_at=timezone.now(),
        fingerprint="1",
    )
    dispatcher.look()
    assert Incident.objects.get().told == ""  # its time is that of the safety look
    dispatcher.pace.may_ask_at = 0.0

    dispatcher.look()

    assert Incident.objects.get().told == Incident.Told.OPEN


def test_a_slot_that_nothing_has_looked_at_yet_is_found_by_the_safety_look() -> None:
    wide = Wide(couriers=[Watcher])
    assert not Looks().look(asks_for_events=True, wide=wide).couriers
    Source.objects.create(slug="shop", kind="postgresql", settings={})

    assert Looks().look(asks_for_events=True, wide=wide).couriers == [Watcher.name_of]


def test_a_look_that_cannot_read_what_is_rare_reads_the_rest(settings: Any) -> None:
    looks = Looks()
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '50ms'")
    with psycopg.connect(**wanted_parameters()) as other:
        other.execute("LOCK TABLE runs_incident")
        for _ in range(2):
            seen = looks.look(asks_for_events=True, wide=Wide())
            assert not seen.own.has_events and not seen.runs.ready
            assert seen.runs.rare == Rare()  # all of it may be due
        with CaptureQueriesContext(connection) as queries:
            looks.look(asks_for_events=True, wide=Wide())
        assert sum("runs_incident" in query["sql"] for query in queries) == 1  # one wait for the lock
    looks.look(asks_for_events=True, wide=Wide())
    with CaptureQueriesContext(connection) as queries:
        assert looks.look(asks_for_events=True, wide=Wide()).runs.rare != Rare()
    assert len(queries) == 1
    connection.close()


def test_a_dispatcher_that_has_long_been_idle_asks_half_as_often_unless_something_rare_waits(settings: Any) -> None:
    pace, look = Pace(), settings.WAKEFUL_SAFETY_LOOK.total_seconds()
    nothing = Rare(budget_waits=False, reservations=False, requests=False, incidents=False, blocked=False)

    pace.asked(nothing)
    assert pace.wait <= look
    pace.moved_at -= 7 * look
    pace.asked(nothing)
    assert look < pace.wait <= 2 * look
    pace.asked(replace(nothing, requests=True))
    assert pace.wait <= look
    pace.asked(nothing)
    pace.moved()
    pace.asked(nothing)
    assert pace.wait <= look


def test_a_look_that_finds_an_event_dispatches_it(dispatcher: Dispatcher) -> None:
    make_trigger()
    make_event()

    dispatcher.look()

    assert not Event.objects.filter(dispatched_at=None).exists()


def test_a_look_that_finds_a_redispatch_dispatches_it(dispatcher: Dispatcher) -> None:
    trigger = make_trigger()
    event = make_event()
    dispatcher.look()
    Redispatch.objects.create(event=event, trigger=trigger, replay_id=uuid4(), by="test")

    dispatcher.look()

    assert not Redispatch.objects.filter(dispatched_at=None).exists()


def test_events_are_not_looked_for_twice_while_that_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old snapshot keeps entries of dispatched events in the index."""
    assert not Looks().look(asks_for_events=True).own.has_events
    monkeypatch.setattr(pending.first, "hint", lambda: 7)

    assert Looks().look(asks_for_events=True).own.has_events


def test_a_table_that_is_locked_costs_one_half_and_one_wait(settings: Any) -> None:
    looks = Looks()
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '50ms'")
    with psycopg.connect(**wanted_parameters()) as other:
        other.execute("LOCK TABLE triggers_window")
        seen = looks.look(asks_for_events=True)
        assert seen.own.has_events and not seen.runs.ready  # `runs` was read; of `triggers` all may be due
        with CaptureQueriesContext(connection) as queries:
            looks.look(asks_for_events=True)
        assert sum("triggers_window" in query["sql"] for query in queries) == 1
    looks.look(asks_for_events=True)
    with CaptureQueriesContext(connection) as queries:
        looks.look(asks_for_events=True)
    assert len(queries) == 1 and re.search(
        "triggers_window.*runs_wait|runs_wait.*triggers_window", queries[0]["sql"], re.S
    )
    connection.close()


def test_a_dispatcher_that_never_rests_notes_that_it_listens_before_the_note_is_over(dispatcher: Dispatcher) -> None:
    """Writers of watched tables send it no NOTIFY otherwise."""
    dispatcher.promise.is_open = False
    dispatcher.leadership.noted_at = float("-inf")
    make_trigger()
    make_event()
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval('triggers_listens_until', 2)")

    began = time.monotonic()
    batch, _ = dispatcher.look()
    promised = dispatcher.owed(began, batch)
    dispatcher.let_go(promised)

    assert dispatcher.leadership.is_held  # for the look that is owed after its own work
    with connection.cursor() as cursor:
        cursor.execute("SELECT last_value > extract(epoch FROM clock_timestamp()) * 1000 FROM triggers_listens_until")
        assert cursor.fetchone() == (True,)


def test_a_ring_that_was_lost_waits_for_the_next_ring_and_not_for_the_safety_look(dispatcher: Dispatcher) -> None:
    """The courier has rung a moment before, and then found no further run."""
    dispatcher.couriers.ringer.quick.ring = lambda runs: True  # type: ignore[method-assign]  # and no worker gets it
    dispatcher.ring_at = time.monotonic() + RING_EVERY
    make_trigger()
    make_event()
    dispatcher.is_urgent = True
    dispatcher.look()
    dispatcher.is_urgent = False

    _, wait = dispatcher.look()  # the run has not been claimed

    assert wait <= RING_EVERY


def test_a_notify_that_a_frozen_child_does_not_take_is_followed_by_a_ring_also_after_another_one(
    dispatcher: Dispatcher,
) -> None:
    """The courier has rung a moment before, for other runs."""
    dispatcher.ring_at = time.monotonic() + RING_EVERY
    make_trigger()
    make_event()
    dispatcher.is_urgent = True
    with psycopg.connect(**wanted_parameters()) as child:
        child.execute(LOCK, ["default"])
        dispatcher.look()

    # Or it has been so slow that it rings already.
    assert dispatcher.ring_at <= time.monotonic() + CLAIMED or not dispatcher.couriers.ringer.ring_at


def test_runs_of_another_queue_are_rung_for_within_a_second_while_each_look_makes_new_ones_ready(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a queue whose runs other processes make ready, such as the children that a run spawns, the courier knows alone."""
    clock, rung = Clock(), list[float]()
    monkeypatch.setattr(loop, "time", clock)
    monkeypatch.setattr(late, "time", clock)
    monkeypatch.setattr(dispatcher.couriers.ringer, "ring", lambda: rung.append(clock.now))
    monkeypatch.setattr(dispatcher.couriers.ringer.quick, "ring", lambda runs: True)
    make_trigger()
    make_run(queue="other", ready_at=Now())
    dispatcher.was_ready = True  # it was rung for, and no child was free
    dispatcher.ring_at, began = clock.now, clock.now

    while clock.now <= began + RING_EVERY + AT_MOST + CLAIMED:
        make_event()
        dispatcher.is_urgent = True
        dispatcher.look()
        clock.now += CLAIMED / 2

    assert len(rung) == 1


def test_a_run_that_came_with_an_event_without_a_run_is_rung_for_by_the_next_look(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One NOTIFY announces both. The run's child is free, while other runs wait for a busy one."""
    rung = list[float]()
    monkeypatch.setattr(dispatcher.couriers.ringer, "ring", lambda: rung.append(time.monotonic()))
    make_run(queue="busy")
    dispatcher.was_ready, dispatcher.ring_at = True, time.monotonic() + 3600  # they were rung for
    make_run(queue="free")
    make_event(type="nothing.listens")
    dispatcher.is_urgent = dispatcher.notified = True
    dispatcher.look()
    dispatcher.is_urgent = dispatcher.notified = False

    dispatcher.look()
    dispatcher.look()

    assert not Event.objects.filter(dispatched_at=None).exists()
    assert len(rung) == 1


class Clock:
    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now
