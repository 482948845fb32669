"""Events are numbered when they are inserted and seen when they are committed: in another order. Whatever that is, each becomes one run,
and the runs of a key are in the order of the numbers, as far as the events were there together."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count, permutations
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from runs.models import Run
from tests.support.shards import InThreads
from tests.support.triggers import make_trigger
from triggers.accept import builtin_source
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.models import Event, Trigger

pytestmark = pytest.mark.django_db(transaction=True)

SESSIONS = 3
INSERT = """
INSERT INTO triggers_event (id, source_id, ce_source, ce_id, type, subject, data_error, headers, body_sha256, root_id, depth)
SELECT id, %s, '/order', id::text, 'order.paid', %s, '', '{}', '', id, 0 FROM triggers_uuid7() AS id RETURNING id, seq
"""
INSERTS = st.tuples(st.just("insert"), st.integers(0, SESSIONS - 1), st.sampled_from("abcd"))
COMMITS = st.tuples(st.just("commit"), st.integers(0, SESSIONS - 1), st.none())
DISPATCHES = st.tuples(st.just("dispatch"), st.integers(0, 1), st.none())  # by one of two dispatchers
# By one with shards, of which these die before they begin.
IN_PARTS = st.tuples(st.just("dispatch in parts"), st.integers(0, 1), st.sets(st.integers(0, 2), max_size=2))


@dataclass(kw_only=True)
class Recorded:
    id: UUID
    seq: int
    key: str
    committed_at: int = 0  # the number of the action


@contextmanager
def beside() -> Iterator[list[psycopg.Connection]]:
    parameters = connection.get_connection_params()
    names = ("host", "port", "user", "password", "dbname")
    address = make_conninfo(**{name: parameters[name] for name in names if name in parameters})
    with ExitStack() as at_end:
        yield [at_end.enter_context(psycopg.connect(address)) for _ in range(SESSIONS)]


@settings(max_examples=20)
@given(
    actions=st.lists(st.one_of(INSERTS, INSERTS, COMMITS, DISPATCHES), min_size=6, max_size=20),
    most=st.sampled_from([1, 2, 1000]),
)
def test_the_runs_of_a_key_are_in_the_order_of_their_events_whatever_the_order_of_commits(
    actions: list[tuple[str, int, Any]], most: int
) -> None:
    assert_the_order_of_keys(actions, most)


@pytest.mark.parametrize("shards", [2, 64])
@settings(max_examples=20)
@given(actions=st.lists(st.one_of(INSERTS, INSERTS, INSERTS, COMMITS, IN_PARTS), min_size=10, max_size=40))
def test_the_runs_of_a_key_are_in_the_order_of_their_events_where_shards_dispatch_them(
    shards: int, actions: list[tuple[str, int, Any]]
) -> None:
    assert_the_order_of_keys(actions, 1000, shards)


def assert_the_order_of_keys(actions: list[tuple[str, int, Any]], most: int, shards: int = 1) -> None:
    for model in (Run, Event, Trigger):
        model.objects.all().delete()
    make_trigger(types=["order.*"], key="event.subject", overlap="queue")
    with beside() as sessions:
        recorded, dispatched_at = carried_out(actions, most, sessions, shards)

    runs = {run.event_ids[0]: run for run in Run.objects.all()}
    assert len(runs) == Run.objects.count() == len(recorded)
    for one, later in permutations(recorded, 2):
        were_together = one.committed_at < dispatched_at[later.id]
        if one.key == later.key and one.seq < later.seq and were_together:
            assert runs[one.id].seq < runs[later.id].seq


def carried_out(
    actions: list[tuple[str, int, Any]], most: int, sessions: list[psycopg.Connection], shards: int
) -> tuple[list[Recorded], dict[UUID, int]]:
    """The events, and the number of the action that dispatched each. In the end all are committed and dispatched."""
    source, dispatchers = builtin_source("manual"), (Rules(), Rules())
    recorded, dispatched_at = list[Recorded](), dict[UUID, int]()
    uncommitted: list[list[Recorded]] = [[] for _ in sessions]

    def carry_out(number: int, what: str, which: int, key: Any) -> None:
        if what == "insert":
            [(id, seq)] = sessions[which].execute(INSERT, [source, key])
            recorded.append(Recorded(id=id, seq=seq, key=key))
            uncommitted[which].append(recorded[-1])
        elif what == "commit":
            sessions[which].commit()
            while uncommitted[which]:
                uncommitted[which].pop().committed_at = number
        else:
            dispatch(dispatchers[which], most, InThreads(dispatchers[which], shards, key or ()) if shards > 1 else None)
            for [event_id] in Run.objects.values_list("event_ids", flat=True):
                dispatched_at.setdefault(event_id, number)

    numbers = count()
    for action in [*actions, *(("commit", session, None) for session in range(SESSIONS))]:
        carry_out(next(numbers), *action)
    while Event.objects.filter(dispatched_at=None).exists():
        carry_out(next(numbers), "dispatch", 0, None)
    return recorded, dispatched_at
