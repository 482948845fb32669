"""The shards of a dispatcher as the processes that they are: what is dispatched by several at once is dispatched once and in order,
whichever of them dies or freezes."""

import os
import signal
import time
from itertools import count
from pathlib import Path
from random import Random

import pytest

from tests.chaos.lab import USERAPPS
from tests.support.points import Points
from tests.support.stack import Process, Stack, StackMaker, eventually
from tests.support.triggers import make_trigger
from triggers.accept import Incoming, accept, builtin_source

EVENTS = 200  # of a pile
LEFT = "SELECT 1 FROM triggers_event WHERE dispatched_at IS NULL LIMIT 1"
OPEN = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'wakeful:dispatcher' AND state LIKE 'idle in transaction%%'"

pytestmark = [pytest.mark.chaos, pytest.mark.long]
_numbers = count()


@pytest.fixture
def points(tmp_path: Path) -> Points:
    return Points(tmp_path / "points")


@pytest.fixture
def stack(make_stack: StackMaker, points: Points) -> Stack:
    return with_triggers(make_stack(env={"WAKEFUL_DISPATCH_SHARDS": "3", **points.env}))


def with_triggers(stack: Stack) -> Stack:
    """Each event makes a run of a key, and one without a key."""
    with stack.orm():
        make_trigger("in-order", types=["order.*"], key="event.subject", overlap="queue")
        make_trigger("at-once", types=["order.*"])
    return stack


@pytest.mark.parametrize("point", ["before_shard_commit", "after_shard_commit"])
@pytest.mark.parametrize("action", ["kill", "stop", "cut", "error"])
def test_a_shard_that_dies_freezes_or_fails_loses_nothing_and_repeats_nothing(
    stack: Stack, points: Points, point: str, action: str
) -> None:
    dispatcher = stack.start("dispatcher")
    points.arm(point, action)
    struck = piles_until_hit(stack, points, point)
    assert struck != dispatcher.pid

    assert_each_is_dispatched_once_and_in_order(stack)
    pile(stack)
    assert_each_is_dispatched_once_and_in_order(stack)
    assert dispatcher.is_alive()


def test_a_shard_whose_dispatcher_dies_keeps_the_next_one_waiting_until_it_has_committed(
    stack: Stack, points: Points
) -> None:
    orphan = orphan_beside_a_successor(stack, points, "wait")
    points.release("before_shard_commit")

    assert_each_is_dispatched_once_and_in_order(stack)
    eventually(lambda: not is_running(orphan))


def test_a_frozen_shard_whose_dispatcher_dies_loses_its_transaction(stack: Stack, points: Points) -> None:
    orphan = orphan_beside_a_successor(stack, points, "stop")

    assert_each_is_dispatched_once_and_in_order(stack)
    os.kill(orphan, signal.SIGCONT)
    eventually(lambda: not is_running(orphan))
    assert_each_is_dispatched_once_and_in_order(stack)


def test_shards_end_with_their_dispatcher(stack: Stack) -> None:
    dispatcher = stack.start("dispatcher")
    pile(stack)
    shards = eventually(lambda: shards_of(dispatcher))
    assert dispatcher.stop() == 0
    assert not any(map(is_running, shards))


@pytest.mark.timeout(580)
def test_sixty_four_shards_keep_the_order_of_keys_while_they_and_their_dispatcher_are_killed(
    make_stack: StackMaker,
) -> None:
    random = Random(64)
    in_parts = {"WAKEFUL_APPS": "lab", "LAB_PATCHES": "in_parts", "PYTHONPATH": str(USERAPPS)}
    stack = with_triggers(make_stack(env={"WAKEFUL_DISPATCH_SHARDS": "64", **in_parts}))
    dispatcher = stack.start("dispatcher", wait=False)
    for kill in range(12):
        shards = eventually(lambda: at_least(60, shards_of(dispatcher)), timeout=120)
        for _ in range(5):
            pile(stack, keys=100)
            time.sleep(random.uniform(0, 0.3))
        if kill in (4, 8):
            dispatcher.kill()
            dispatcher.restart(wait=False)
        else:
            os.kill(random.choice(shards), signal.SIGKILL)
        assert_each_is_dispatched_once_and_in_order(stack, timeout=120)


def shards_of(dispatcher: Process) -> list[int]:
    return [child.pid for child in dispatcher.children() if is_running(child.pid)]


def at_least(count: int, pids: list[int]) -> list[int]:
    return pids if len(pids) >= count else []


def is_running(pid: int) -> bool:
    try:
        return "triggers.dispatch.shard" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


def orphan_beside_a_successor(stack: Stack, points: Points, action: str) -> int:
    """The shard that does this before its commit; its dispatcher is dead, and another one has work."""
    dispatcher = stack.start("dispatcher")
    points.arm("before_shard_commit", action)
    orphan = piles_until_hit(stack, points, "before_shard_commit")
    os.kill(dispatcher.pid, signal.SIGKILL)
    stack.start("dispatcher")
    pile(stack)
    return orphan


def pile(stack: Stack, keys: int = 20) -> None:
    """All are there at one moment."""
    with stack.orm():
        source, pile = builtin_source("cli"), next(_numbers)
        accept(
            [
                Incoming(
                    type="order.paid",
                    source_id=source,
                    ce_source="test",
                    ce_id=f"{pile}-{one}",
                    subject=f"{one % keys}",
                )
                for one in range(EVENTS)
            ]
        )


def piles_until_hit(stack: Stack, points: Points, name: str) -> int:
    """The process that came to the point. Shards that load yet leave a pile to the dispatcher."""

    def hit() -> int:
        if not stack.query(LEFT):
            pile(stack)
        return points.hit(name)

    return eventually(hit, every=0.3)


def assert_each_is_dispatched_once_and_in_order(stack: Stack, timeout: float = 60.0) -> None:
    eventually(lambda: not stack.query(LEFT), timeout)
    [events] = stack.query("SELECT count(*) AS n FROM triggers_event WHERE type = 'order.paid'")
    runs = stack.query(
        "SELECT run.trigger, run.key, event.seq FROM runs_run run JOIN triggers_event event ON run.event_ids = ARRAY[event.id] "
        "ORDER BY run.seq"
    )
    for trigger in ("in-order", "at-once"):
        assert len({run["seq"] for run in runs if run["trigger"] == trigger}) == events["n"]
    assert len(runs) == 2 * events["n"]
    for key in {run["key"] for run in runs if run["key"]}:
        of_key = [run["seq"] for run in runs if run["key"] == key]
        assert of_key == sorted(of_key)
