"""The cable of a host is pulled: packets vanish, and no connection is closed. The other host goes on within a lease, and every process of
the one that is cut off notices within half a minute and comes back by itself. In a network of its own, which needs Linux and iproute2."""

import re
import sys
import time
from datetime import timedelta

import pytest

from tests.integration.protocol import emit, make_ticker, ticks_so_far
from tests.support.hosts import Host, hosts
from tests.support.networks import can_make_networks, far_network, in_a_network, is_in_a_network
from tests.support.stack import SHOP, Stack, StackMaker, eventually, within

pytestmark = pytest.mark.chaos

LEASE = {"WAKEFUL_LEASE": "3s", "WAKEFUL_LEASE_RENEW": "0.75s", "WAKEFUL_SAFETY_LOOK": "2s"}
FAR_KINDS = ("dispatcher", "beat", "sources", "caller", "worker")
NOTICED = re.compile(rf"\b({'|'.join(FAR_KINDS)})\.database_gone")
PULLED = 60.0  # seconds
TICKS = 60


@pytest.mark.timeout(400)
@pytest.mark.skipif(is_in_a_network() or not can_make_networks(), reason="needs iproute2 and namespaces of users")
def test_a_pulled_cable_is_noticed_by_every_process_and_costs_nothing() -> None:
    """Started again where this process may pull cables."""
    done = in_a_network([sys.executable, "-m", "pytest", "-q", "-s", "-m", "", f"{__file__}::test_inside"])
    print(done.stdout, flush=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.timeout(350)
@pytest.mark.skipif(not is_in_a_network(), reason="the test above starts it in a network of its own")
def test_inside(make_stack: StackMaker) -> None:
    stack = make_stack(env={**SHOP, **LEASE}, agents=True)
    with far_network() as far, hosts(stack, "anton", "berta", address=far.address) as (anton, berta):
        berta.within = far.within
        anton.up("dispatcher", "beat", "sources", "caller", "worker")
        berta.up(*FAR_KINDS)
        make_ticker(stack, every="1s", length=timedelta(seconds=TICKS))
        for number in range(20):
            emit(stack, "sleep.a", f"before-{number}", key=str(number), seconds=1)
        time.sleep(1.5)

        far.pull()
        pulled = time.monotonic()
        for number in range(100):
            emit(stack, "effect.a", f"during-{number}")
        with within(30):
            eventually(lambda: finished(stack) >= 320)
        took_over = time.monotonic() - pulled
        noticed = watch(berta, until=pulled + PULLED)

        far.plug()
        since, plugged = stack.query("SELECT clock_timestamp() AS at")[0]["at"], time.monotonic()
        with within(30):
            eventually(lambda: not berta.unseen(since))
        back = time.monotonic() - plugged

        eventually(lambda: ticks_so_far(stack) >= TICKS - 1, TICKS + 30)
        eventually(lambda: not stack.query("SELECT 1 FROM runs_run WHERE status <> 'succeeded'"))
        stack.manage("verify")
        words = ", ".join(f"{kind} {seconds - pulled:.0f}" for kind, seconds in noticed.items())
        print(
            f"\ntaken over within {took_over:.1f} s; noticed after, s: {words}; all back {back:.1f} s after it was plugged in"
        )
        assert set(noticed) == set(FAR_KINDS)
        assert max(noticed.values()) - pulled < 50


def finished(stack: Stack) -> int:
    return int(
        stack.query("SELECT count(*) AS n FROM runs_run WHERE status = 'succeeded' AND agent <> 'ticker'")[0]["n"]
    )


def watch(host: Host, *, until: float) -> dict[str, float]:
    """When each process has said that a server is gone."""
    noticed: dict[str, float] = {}
    while time.monotonic() < until:
        for process in host.processes:
            if process.kind not in noticed and NOTICED.search(process.output()):
                noticed[process.kind] = time.monotonic()
        time.sleep(0.2)
    return noticed
