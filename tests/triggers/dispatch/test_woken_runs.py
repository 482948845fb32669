"""A run whose wait ends is as urgent as a new one: the child that stays is woken for it, or the dispatcher itself rings."""

from collections.abc import Callable, Iterator, Mapping

import psycopg
import pytest
from django.db import connection

from agents import AgentRun
from runs.db.sql import execute
from runs.queues.stayers import LOCK, channel_of
from tests.support.durable import Lab, lab
from tests.support.triggers import make_event
from triggers.dispatch.loop import Dispatcher

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    """It has looked twice: its alarms are ended, its switches armed, its chores done."""
    dispatcher = Dispatcher()
    dispatcher.leadership.begin()
    for _ in range(2):
        dispatcher.look()
        dispatcher.leadership.release()
    yield dispatcher
    dispatcher.leadership.release()
    connection.close()


def by_event(run: AgentRun) -> None:
    run.wait_for_event("order.paid", timeout="1h")


def by_time(run: AgentRun) -> None:
    run.sleep("1h")


def end_wait(body: Callable[[AgentRun], None]) -> None:
    if body is by_event:
        make_event(type="order.paid")
    else:
        execute("UPDATE runs_wait SET created_at = created_at - interval '2 h', due_at = due_at - interval '2 h'")


def rings_of(dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """The rings of its own thread, which are not sent."""
    rung: list[dict[str, int]] = []

    def ring(runs: Mapping[str, int]) -> bool:
        rung.append(dict(runs))
        return True

    monkeypatch.setattr(dispatcher.couriers.ringer.quick, "ring", ring)
    return rung


@pytest.mark.parametrize("body", [by_event, by_time])
def test_the_child_that_stays_is_woken_and_nothing_is_rung_for(
    lab: Lab, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch, body: Callable[[AgentRun], None]
) -> None:
    rung = rings_of(dispatcher, monkeypatch)
    assert lab.run(body).status == "waiting"
    given = connection.get_connection_params()
    wanted = {name: given[name] for name in ("host", "port", "user", "password", "dbname") if name in given}
    with psycopg.connect(**wanted, autocommit=True) as child:
        child.execute(f"LISTEN {channel_of('default')}")
        child.execute(LOCK, ["default"])
        end_wait(body)
        batch, _ = dispatcher.look()

        assert [notice.channel for notice in child.notifies(timeout=60, stop_after=1)] == [channel_of("default")]
    assert batch.ring_for == {"default": 1} and not batch.ready and not rung


@pytest.mark.parametrize("body", [by_event, by_time])
def test_where_no_child_stays_the_dispatcher_rings_by_itself(
    lab: Lab, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch, body: Callable[[AgentRun], None]
) -> None:
    rung = rings_of(dispatcher, monkeypatch)
    assert lab.run(body).status == "waiting"
    end_wait(body)

    dispatcher.look()

    assert rung == [{"default": 1}]


def test_after_a_wait_has_ended_by_time_the_dispatcher_looks_again_soon(lab: Lab, dispatcher: Dispatcher) -> None:
    """The look found the earliest deadline alone; the next may be a moment later."""
    assert lab.run(by_time).status == "waiting"
    end_wait(by_time)

    batch, _ = dispatcher.look()
    dispatcher.owed(0.0, batch)

    assert dispatcher.follow_up.again_at is not None


def test_a_run_that_needs_a_place_of_its_key_is_no_news_for_a_child(lab: Lab, dispatcher: Dispatcher) -> None:
    run = lab.run(by_event, key="one", slot=1, key_limit=2)
    assert (run.status, run.slot) == ("waiting", None)
    end_wait(by_event)

    batch, _ = dispatcher.look()

    # The timers line it up for a place, in this look or the next.
    assert not batch.ring_for and batch.ready
