"""Dispatch beside a neighbour who holds a dispatch_lock, on a committed database."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from runs.db.sql import execute
from runs.models import Run
from tests.support.stack import Stack
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch import batch
from triggers.dispatch.batch import Batch, dispatch
from triggers.dispatch.begin import Begun, begin
from triggers.dispatch.rules import Rules
from triggers.dispatch_lock import LOCK
from triggers.matching.pending import read_items


@pytest.fixture
def neighbour(stack: Stack) -> Iterator[psycopg.Connection]:
    """Another session, with an open transaction; this one's models speak to the same database."""
    with stack.orm(), psycopg.connect(stack.database_url) as connection:
        yield connection


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


def test_a_second_dispatcher_stands_by_while_another_holds_the_lock(neighbour: psycopg.Connection) -> None:
    make_trigger()
    make_event()
    neighbour.execute("SELECT pg_advisory_xact_lock(%s::int, %s::int)", LOCK)

    assert dispatch(Rules()).standby
    neighbour.rollback()
    assert dispatch(Rules()).dispatched == 1


def test_a_large_event_is_matched_outside_the_transaction(neighbour: psycopg.Connection) -> None:
    make_trigger(filter="event.data.items.exists(item, item.name == 'last')")
    items = [{"id": number, "name": str(number), "tags": [1, 2, 3]} for number in range(60_000)]
    large, small = make_event(data={"items": items}), make_event(data={"items": [{"name": "last"}]})
    # Parsing and matching it takes longer than this; a session idle in a transaction meanwhile would be ended.
    execute("SET idle_in_transaction_session_timeout = '100ms'")

    rules = Rules()
    assert [item.event_id for item in read_items(500)] == [large.id]  # a batch of its own
    assert dispatch(rules).dispatched == 1
    assert [item.event_id for item in read_items(500)] == [small.id]
    assert dispatch(rules).dispatched == 1


def test_a_batch_is_bounded_by_the_size_of_its_payloads(neighbour: psycopg.Connection) -> None:
    make_trigger()
    events = [make_event(body=b"x" * 3_000_000) for _ in range(3)]

    assert [item.event_id for item in read_items(500)] == [events[0].id]


def test_a_trigger_edited_while_a_batch_is_matched_is_matched_again(
    neighbour: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_trigger()
    make_event()
    rules = Rules()

    def edit(*matched: Any) -> Begun | None:
        neighbour.execute("UPDATE triggers_trigger SET types = ARRAY['invoice.*']")
        neighbour.commit()
        return real(*matched)

    real = begin
    monkeypatch.setattr(batch, "begin", edit)
    assert dispatch(rules) == Batch(left=1)
    monkeypatch.setattr(batch, "begin", real)
    assert dispatch(rules).dispatched == 1
    assert not Run.objects.exists()
