"""Events leave a real stack while its dispatcher is killed at every moment between claim and record, and while a receiver is dead."""

from collections import Counter
from pathlib import Path

import pytest

from tests.support.outbound import SECRET, subscribe
from tests.support.points import Points
from tests.support.post_office import taking_hooks
from tests.support.stack import Stack, StackMaker, eventually
from tests.support.triggers import make_event
from triggers.sources.edit import create_source
from triggers.sources.secrets import add_secret

pytestmark = pytest.mark.chaos

MOMENTS = ("before_dispatch_commit", "after_dispatch_commit", "after_outbound_claim", "after_outbound_send")
HERE = {"WAKEFUL_OUTBOUND_NETWORKS": "127.0.0.0/8"}


def end_leases(stack: Stack) -> bool:
    stack.query("UPDATE triggers_eventdelivery SET due_at = now() WHERE status IN ('sending', 'pending') RETURNING id")
    return True


def statuses(stack: Stack, name: str = "shop") -> Counter[str]:
    return Counter(
        row["status"] for row in stack.query("SELECT status FROM triggers_eventdelivery WHERE name = %s", name)
    )


def test_a_dispatcher_that_is_killed_loses_no_event_and_repeats_with_the_same_id(
    make_stack: StackMaker, tmp_path: Path
) -> None:
    points = Points(tmp_path / "points")
    stack = make_stack(env={**HERE, **points.env})
    with taking_hooks() as hook:
        with stack.orm():
            subscribe(hook.url)
        dispatcher = stack.start("dispatcher")
        for number, moment in enumerate(MOMENTS * 3):
            points.arm(moment, "kill")
            with stack.orm():
                for _ in range(5):
                    make_event(data={"n": number})
            eventually(lambda moment=moment: points.hit(moment))  # type: ignore[misc]
            dispatcher.wait()
            points.release(moment)
            end_leases(stack)
            dispatcher.restart()
        total = 5 * len(MOMENTS) * 3

        eventually(lambda: end_leases(stack) and statuses(stack) == {"delivered": total}, every=0.5)

        by_event = stack.query("SELECT id, event_id FROM triggers_eventdelivery")
        assert len({row["event_id"] for row in by_event}) == total
        assert set(hook.ids) == {f"msg_{row['id']}" for row in by_event}
        assert total <= len(hook.ids) <= total + 8 * len(MOMENTS) * 3


def test_a_dead_receiver_delays_no_other_and_a_loop_ends(make_stack: StackMaker) -> None:
    stack = make_stack(env=HERE)
    stack.start("web")
    with taking_hooks() as dead, taking_hooks() as quick:
        dead.manner = "silent"
        with stack.orm():
            source = create_source("loop", kind="standard_webhooks", settings={}, by="test")
            add_secret(source, SECRET, by="test")
            subscribe(f"http://127.0.0.1:{stack.port}/hooks/loop/", "loop", types=["loop.*"])
            subscribe(dead.url, "dead")
            subscribe(quick.url, "quick")
        stack.start("dispatcher")
        with stack.orm():
            make_event(type="loop.began")
            for _ in range(200):
                make_event()

        eventually(lambda: statuses(stack, "quick") == {"delivered": 200})
        assert statuses(stack, "dead")["delivered"] == 0
        late = "SELECT extract(epoch FROM ended_at - entered_at)::float8 AS s FROM triggers_eventdelivery WHERE name = 'quick'"
        waits = sorted(row["s"] for row in stack.query(late))
        print(f"quick beside a dead one: median {waits[100]:.3f} s, longest {waits[-1]:.3f} s")

        # Out and in again, until its chain is too deep.
        eventually(lambda: statuses(stack, "loop")["error"] == 1)
        depths = stack.query("SELECT depth FROM triggers_event WHERE type = 'loop.began' ORDER BY depth")
        assert [row["depth"] for row in depths] == list(range(10))
        dead.gate.set()
