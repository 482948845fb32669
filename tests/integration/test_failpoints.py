"""A process that dies between two commits of the path leaves nothing lost and nothing done twice."""

import pytest

from tests.integration.protocol import effects, emit, in_status, runs, shop_stack
from tests.support.stack import Stack, StackMaker, eventually

pytestmark = [pytest.mark.chaos, pytest.mark.long]

DISPATCHER = ["before_dispatch_commit", "after_dispatch_commit", "before_ring", "before_outbox_commit"]
RESCUE = ["after_close", "after_terminate"]


def drained(stack: Stack) -> bool:
    left = "SELECT 1 FROM runs_run WHERE status IN ('queued', 'running') UNION ALL SELECT 1 FROM runs_outboxmessage"
    return not stack.query(left + " UNION ALL SELECT 1 FROM triggers_event WHERE dispatched_at IS NULL")


def test_a_dispatcher_killed_anywhere_loses_and_repeats_nothing(make_stack: StackMaker) -> None:
    stack = shop_stack(make_stack)
    stack.processes[0].stop()
    stack.start("worker", concurrency=1)

    for point in DISPATCHER:
        dispatcher = stack.start("dispatcher", env={"WAKEFUL_FAILPOINTS": f"{point}=kill"})
        event = emit(stack, "effect.a", point)
        assert dispatcher.wait() == -9, point
        successor = stack.start("dispatcher")

        in_status(stack, event, "succeeded")
        eventually(lambda: drained(stack))
        assert effects(stack, event) == 2, point
        successor.stop()

    chained = stack.query("SELECT count(*) FROM shop_effect WHERE agent = 'chained'")
    assert chained[0]["count"] == len(DISPATCHER)


@pytest.mark.parametrize("point", RESCUE)
def test_a_rescuer_killed_halfway_is_followed_by_another(make_stack: StackMaker, point: str) -> None:
    stack = shop_stack(make_stack, WAKEFUL_LEASE="3s", WAKEFUL_LEASE_RENEW="1s")
    stack.processes[0].stop()
    rescuer = stack.start("dispatcher", env={"WAKEFUL_FAILPOINTS": f"{point}=kill"})
    worker = stack.start("worker", concurrency=1)
    event = emit(stack, "sleep.a", "1", key="k", seconds=20)
    in_status(stack, event, "running")

    worker.kill()
    assert rescuer.wait() == -9
    stack.start("dispatcher")

    run = eventually(lambda: runs(stack, "status = 'queued' AND ready_at IS NOT NULL"), 20)[0]
    assert run["attempt"] == 1
    assert effects(stack, event) == 0
