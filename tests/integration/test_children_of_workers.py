"""The children of a worker, as real processes: a run outlives a SIGTERM to its child, and no child outlives its parent."""

import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.integration.protocol import emit, run_of, runs
from tests.support.points import Points
from tests.support.stack import SHOP, Process, Stack, StackMaker, eventually


@pytest.fixture
def stack(make_stack: StackMaker) -> Stack:
    return make_stack(env=SHOP, agents=True)


@pytest.fixture
def points(tmp_path: Path) -> Points:
    return Points(tmp_path / "points")


@pytest.fixture
def worker(stack: Stack, points: Points) -> Process:
    worker = stack.start("worker", env=points.env)
    assert len(worker.children()) == 2
    return worker


def begun(stack: Stack, points: Points) -> tuple[str, psutil.Process]:
    """An event, and the child that waits with its run."""
    points.arm("after_claim", "wait")
    stack.start("dispatcher")
    event = emit(stack, "sleep.now", "1", key="a", seconds=0)
    return event, psutil.Process(eventually(lambda: points.hit("after_claim")))


def ends_at_sigterm(child: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        child.terminate()
        return not child.is_running()
    return True


@pytest.mark.chaos
def test_a_child_that_runs_something_leaves_sigterm_to_its_parent(
    stack: Stack, points: Points, worker: Process
) -> None:
    """Terminals, and supervisors that know groups of processes alone, send it to all of them."""
    event, child = begun(stack, points)
    idle = next(other for other in worker.children() if other.pid != child.pid)

    child.terminate()
    eventually(lambda: ends_at_sigterm(idle))  # it may just look for a run
    points.release("after_claim")
    run = run_of(stack, event)
    eventually(lambda: runs(stack, "id = %s AND status = 'succeeded'", run["id"]))
    [done] = runs(stack, "id = %s", run["id"])
    assert (done["attempt"], done["epoch"]) == (1, 1)
    assert child.is_running()


def test_children_die_with_their_parent(stack: Stack, points: Points, worker: Process) -> None:
    begun(stack, points)
    children = worker.children()

    worker.signal(signal.SIGKILL)
    worker.wait()

    assert psutil.wait_procs(children, timeout=30)[1] == []  # also the one that would wait for a minute
