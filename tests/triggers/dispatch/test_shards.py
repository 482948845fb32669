"""What a dispatcher does about shards that do not start, do not begin, or dispatch nothing. They are processes that answer at once."""

import pickle
import sys
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
from django.utils import timezone

from runs.processes.failing import Failing
from triggers.dispatch import shards
from triggers.dispatch.batch import Batch
from triggers.dispatch.rules import Rules
from triggers.dispatch.shard import FORMAT
from triggers.dispatch.shards import Shards
from triggers.matching.match import Matched
from triggers.matching.pending import Item

EVENTS = 2 * shards.LEAST
START = """
import socket, struct, sys, time
from pathlib import Path
number, descriptor = sys.argv[1:3]
{begin}
with socket.socket(fileno=int(descriptor)) as dispatcher:
    for message in ({hello!r}, *[{answer!r}] * 100):
        dispatcher.sendall(struct.pack(">Q", len(message)) + message)
    while dispatcher.recv(2**20):
        pass
"""
DISPATCHED, LEFT = Batch(dispatched=shards.LEAST), Batch(left=shards.LEAST)


@pytest.fixture
def pool() -> Iterator[Shards]:
    found = Shards(2, Failing())
    yield found
    found.close()


def starts(monkeypatch: pytest.MonkeyPatch, answer: Batch = DISPATCHED, begin: str = "") -> None:
    text = START.format(begin=begin, hello=FORMAT, answer=pickle.dumps(answer))
    monkeypatch.setattr(shards, "START", text)


def events() -> list[Matched]:
    now = timezone.now()
    return [
        Matched(
            item=Item(
                event_id=id, source="", type="a", subject="", time=now, target_id=None, root_id=id, depth=0, seq=0
            )
        )
        for id in (uuid4() for _ in range(EVENTS))
    ]


def dispatch(pool: Shards) -> tuple[Batch, int]:
    """What shards did, and how many events are left to the dispatcher."""
    rules = Rules()
    rules.version = [(1, None, 1)]
    batch, rest = pool.dispatch(rules, events(), set())
    return batch, len(rest)


def dispatch_once_begun(pool: Shards) -> Batch:
    while (found := dispatch(pool)) == (Batch(), EVENTS):
        time.sleep(0.01)
    return found[0]


def test_shards_that_dispatch_their_parts_go_on(pool: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    starts(monkeypatch)
    assert dispatch_once_begun(pool) == Batch(dispatched=EVENTS)
    assert dispatch(pool) == (Batch(dispatched=EVENTS), 0)


def test_after_a_part_of_which_nothing_was_dispatched_the_dispatcher_does_it_alone(
    pool: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules that are edited all the time: the dispatcher alone can match again under the dispatch lock."""
    starts(monkeypatch, LEFT)
    assert dispatch_once_begun(pool) == Batch(left=EVENTS)
    assert dispatch(pool) == (Batch(), EVENTS)
    assert pool.alone_until > time.monotonic()
    assert len(pool.all) == 2


def test_where_no_process_can_be_started_the_dispatcher_dispatches_alone(
    pool: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/there-is-none")
    assert dispatch(pool) == (Batch(), EVENTS)
    assert pool.alone_until > time.monotonic()


def test_a_shard_that_does_not_begin_is_ended(pool: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "START_WITHIN", 0.0)
    starts(monkeypatch, begin="time.sleep(600)")
    dispatch(pool)
    assert dispatch(pool) == (Batch(), EVENTS)
    assert not pool.all
    assert pool.alone_until > time.monotonic()


def test_the_pauses_grow_while_one_of_several_shards_ends_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Shards(3, Failing())
    monkeypatch.setattr(shards, "LEAST", 10)
    starts(monkeypatch, begin="if number == '2': sys.exit()")
    pauses = list[int]()
    while len(pauses) < 3:
        dispatch(pool)  # the others dispatch while it loads
        if (pause := pool.alone_until - time.monotonic()) > 0:
            pauses.append(round(pause))
            pool.alone_until = 0.0
        time.sleep(0.01)
    pool.close()
    assert pauses == [1, 2, 4]
    assert list(pool.failing.since) == [shards.WORK]
