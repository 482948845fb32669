"""Dispatch beside a neighbour who holds a lock, on a committed database."""

from collections.abc import Iterator

import psycopg
import pytest

from tests.stack import Stack
from tests.triggers.factories import make_event, make_trigger
from triggers.accept import builtin_source
from triggers.dispatch import LOCK, Batch, Rules, dispatch


@pytest.fixture
def neighbour(stack: Stack) -> Iterator[psycopg.Connection]:
    """Another session, with an open transaction; this one's models speak to the same database."""
    builtin_source.cache_clear()
    with stack.orm(), psycopg.connect(stack.database_url) as connection:
        yield connection
    builtin_source.cache_clear()


def test_a_key_locked_elsewhere_leaves_its_events_in_order_to_the_next_batch(
    stack: Stack, neighbour: psycopg.Connection
) -> None:
    trigger = make_trigger(overlap="queue", key="event.data.customer")
    make_trigger("other", overlap="queue", key="'one'")
    busy, free, also_busy = (make_event(data={"customer": name}) for name in ("a", "b", "a"))
    neighbour.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"{trigger.id}:a"])

    # `free` shares the key of the other trigger with `busy`, which came before it.
    assert dispatch(Rules()) == Batch(dispatched=0, left=3)
    neighbour.rollback()
    assert dispatch(Rules()).dispatched == 3

    rows = stack.query("SELECT event_ids FROM runs_run WHERE trigger = 'other' ORDER BY seq")
    assert [row["event_ids"] for row in rows] == [[busy.id], [free.id], [also_busy.id]]


def test_dispatch_is_serial(neighbour: psycopg.Connection) -> None:
    make_trigger()
    make_event()
    neighbour.execute("SELECT pg_advisory_xact_lock(%s::int, %s::int)", LOCK)

    assert dispatch(Rules()).standby
    neighbour.rollback()
    assert dispatch(Rules()).dispatched == 1
