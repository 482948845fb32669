"""Hundreds of runs that think, on a worker with two children and a caller, while each process in turn is killed. And the checker's own
test: a build in which a caller that lost its requests records their answers."""

import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from tests.integration.courier import APPS, Courier, eventually
from tests.integration.protocol import runs
from tests.support.receiver import receiving
from tests.support.stack import Process, StackMaker, within
from tests.support.wire import Held, Slow, Turn, Wire, providing

pytestmark = pytest.mark.chaos

MANY = 100  # of each of the two agents
SECONDS = 3.0  # that a request takes
EVERY = 1.5  # seconds between two kills
KINDS = ("dispatcher", "caller", "worker", "child", "beat", "web")
REPEAT, ONCE = "talk", "talk-once"
PAUSE = """
INSERT INTO runs_queue (name, paused_at, paused_reason, paused_by) VALUES ('*', now(), '', '')
ON CONFLICT (name) DO UPDATE SET paused_at = now()
"""
OF_STATUS = "SELECT status, count(*) AS n FROM runs_run WHERE agent = ANY(%s) GROUP BY 1"
AGENTS = [REPEAT, ONCE]


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with providing() as wire:
        yield wire


@pytest.fixture
def courier(make_stack: StackMaker, wire: Wire) -> Iterator[Courier]:
    with receiving() as receiver:
        env = {**wire.env, "WAKEFUL_APPS": f"{APPS['WAKEFUL_APPS']},scribe", "WAKEFUL_MODEL": "openai-chat:gpt-4o"}
        courier = Courier(make_stack, receiver, env)
        for kind in ("web", "dispatcher", "beat", "caller"):
            courier.start(kind)
        courier.start("worker", concurrency=2)
        yield courier


def wake(courier: Courier, each: int) -> list[dict[str, Any]]:
    """So many runs of each agent, which become ready together."""
    courier.stack.query(PAUSE)
    before = {run["id"] for run in runs(courier.stack, "agent = ANY(%s)", AGENTS)}
    for _ in range(each):
        courier.emit("scribe.talk")
        courier.emit("scribe.talk_once")
    eventually(lambda: len(runs(courier.stack, "agent = ANY(%s)", AGENTS)) == len(before) + 2 * each)
    courier.stack.query("UPDATE runs_queue SET paused_at = NULL WHERE name = '*'")
    return [run for run in runs(courier.stack, "agent = ANY(%s)", AGENTS) if run["id"] not in before]


class Killer:
    """Kills one kind of process after the other, and starts it again."""

    def __init__(self, courier: Courier) -> None:
        self.courier = courier
        self.kills = 0

    def kill(self) -> None:
        kind = KINDS[self.kills % len(KINDS)]
        self.kills += 1
        if kind == "child":
            if children := self.process("worker").children():
                children[-1].kill()
            return
        process = self.process(kind)
        process.kill()
        process.restart(wait=False)

    def all_ready(self) -> None:
        for process in self.courier.processes.values():
            process.wait_ready()

    def process(self, kind: str) -> Process:
        return self.courier.processes[f"{kind}-1"]


def statuses(courier: Courier) -> dict[str, int]:
    return {row["status"]: row["n"] for row in courier.stack.query(OF_STATUS, AGENTS)}


def resolve_all(courier: Courier, wire: Wire) -> int:
    """A person says of each uncertain run what the provider knows."""
    uncertain = runs(courier.stack, "status = 'uncertain'")
    for run in uncertain:
        made = wire.asked(run["id"])
        said = {"outcome": "happened", "result": "done"} if made else {"outcome": "did_not_happen"}
        answer = courier.stack.api("POST", f"/api/v1/runs/{run['id']}/resolve/", said)
        assert answer.status == 200, answer.body
    return len(uncertain)


@pytest.mark.timeout(420)
def test_hundreds_that_think_are_paid_once_while_each_process_is_killed_in_turn(courier: Courier, wire: Wire) -> None:
    wire.script("talk", Turn("done", faults=[Slow(SECONDS)] * 20))
    cap = MANY  # half of all requests
    with courier.stack.orm():
        from runs.budgets.caps import create_budget, set_cap

        budget = create_budget(scope="installation", period="day", measure="requests", cap=Decimal(cap), by="a test")
    found = wake(courier, MANY)
    killer = Killer(courier)

    def waits_for_room() -> bool:
        now = statuses(courier)
        return not now.keys() & {"queued", "running"} and not courier.stack.query(
            "SELECT 1 FROM runs_wait WHERE status = 'open' AND kind = 'model' LIMIT 1"
        )

    began = time.monotonic()
    while killer.kills < len(KINDS):
        time.sleep(EVERY)
        killer.kill()
        assert len(wire.requests) <= cap
    killer.all_ready()
    eventually(waits_for_room)
    print(
        f"\n{killer.kills} kills under a cap of {cap}: {len(wire.requests)} requests, {statuses(courier)}", flush=True
    )
    assert len(wire.requests) <= cap

    with courier.stack.orm():
        set_cap(budget.pk, Decimal(100 * MANY), by="a test")
    until = killer.kills + len(KINDS)
    while killer.kills < until:
        time.sleep(EVERY)
        killer.kill()
    killer.all_ready()
    parked = 0
    while set(statuses(courier)) != {"succeeded"}:
        assert time.monotonic() - began < 360, statuses(courier)
        # Before a person has said anything, and after: a request that may be made once was made once.
        assert all(sum(wire.asked(run["id"]).values()) <= 1 for run in found if run["agent"] == ONCE)
        time.sleep(1)
        parked += resolve_all(courier, wire)

    asked = {agent: [sum(wire.asked(run["id"]).values()) for run in found if run["agent"] == agent] for agent in AGENTS}
    print(
        f"{killer.kills} kills: {sum(asked[REPEAT]) - MANY} requests more, {parked} parked, {time.monotonic() - began:.0f} s",
        flush=True,
    )
    assert all(times <= 1 for times in asked[ONCE])
    assert max(asked[REPEAT]) <= 1 + killer.kills // len(KINDS) * 3  # of caller, worker and child
    courier.verify()


@pytest.mark.timeout(240)
def test_a_stop_ends_all_their_requests_within_seconds(courier: Courier, wire: Wire) -> None:
    wire.script("talk", Turn("done", faults=[Held()]))
    found = wake(courier, MANY)
    eventually(lambda: sum(len(wire.of(run["id"])) for run in found) >= len(found) - 1)

    began = time.monotonic()
    courier.stack.manage("stop", "--all", "--reason", "a test")
    with within(5):
        eventually(lambda: all(one.end == "left" for run in found for one in wire.of(run["id"])), every=0.2)
    print(f"\n{len(found)} requests cut in {time.monotonic() - began:.1f} s with the command", flush=True)
    # The run that made its request itself is taken from its worker.
    eventually(lambda: "running" not in statuses(courier))


# The checker's own test


def records_for_another(make_stack: StackMaker, wire: Wire, **patches: str) -> list[str]:
    """A caller freezes until another one makes its requests, and goes on with its answers. What is wrong then."""
    first, second = Held(), Held()
    wire.script("talk", Turn("done", faults=[first, second]))
    with receiving() as receiver:
        env = {**wire.env, "WAKEFUL_APPS": f"{APPS['WAKEFUL_APPS']},scribe,lab", "WAKEFUL_MODEL": "openai-chat:gpt-4o"}
        courier = Courier(make_stack, receiver, env)
        courier.up()
        courier.stack.start("caller", env=patches)
        broken = courier.stack.processes[-1]
        courier.stack.query(PAUSE)
        found = [courier.run(courier.emit("scribe.talk")) for _ in range(6)]
        courier.stack.query("UPDATE runs_queue SET paused_at = NULL WHERE name = '*'")
        eventually(lambda: all(wire.asked(run["id"]) == {0: 1} for run in found))

        courier.start("caller")
        broken.freeze()
        first.release()
        eventually(lambda: all(wire.asked(run["id"]) == {0: 2} for run in found))
        broken.thaw()
        eventually(lambda: "call.late" in broken.output() or "caller.lost" in broken.output() or ended(courier, found))
        wrong = [f"the answer of a caller that lost it was recorded: {run}" for run in ended(courier, found)]
        second.release()
        eventually(lambda: len(ended(courier, found)) == len(found))
        courier.stack.stop()
    return wrong


def ended(courier: Courier, found: list[dict[str, Any]]) -> list[str]:
    wanted = [run["id"] for run in found]
    return [str(run["id"]) for run in runs(courier.stack, "id = ANY(%s) AND status = 'succeeded'", wanted)]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("build", ["whole", "answers_without_a_fence"])
def test_an_answer_of_a_caller_that_lost_its_lease_is_noticed(make_stack: StackMaker, wire: Wire, build: str) -> None:
    wrong = records_for_another(make_stack, wire, LAB_PATCHES="" if build == "whole" else build)

    print(f"\n{build}: {wrong[:2]}", flush=True)
    assert bool(wrong) == (build != "whole")
