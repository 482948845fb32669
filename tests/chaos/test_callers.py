"""Hundreds of runs that think, on a worker with two children and a caller, while each process in turn is killed. And the checker's own
test: builds in which a caller records answers to requests that it lost, or makes a request again that may be made once."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import psutil
import psycopg
import pytest

from tests.integration.courier import APPS, Courier, eventually
from tests.integration.protocol import runs
from tests.support.receiver import Receiver, receiving
from tests.support.stack import Process, StackMaker, within
from tests.support.wire import Held, Request, Slow, Turn, Wire, providing

pytestmark = pytest.mark.chaos

MANY = 100  # of each of the two agents
SECONDS = 3.0  # that a request takes
LEASE = 3.0  # seconds: HASTY of `tests.integration.courier`
EVERY = 1.5  # seconds between two kills
SERVERS = ("postgres", "valkey")
KINDS = ("dispatcher", "caller", "worker", "postgres", "child", "beat", "valkey", "web")
# Those that hold the connections to the provider: a kill of another one ends no request.
MAKERS = ("caller", "worker", "child")
REPEAT, ONCE = "talk", "talk-once"
PAUSE = """
INSERT INTO runs_queue (name, paused_at, paused_reason, paused_by) VALUES ('*', now(), '', '')
ON CONFLICT (name) DO UPDATE SET paused_at = now()
"""
OF_STATUS = "SELECT status, count(*) AS n FROM runs_run WHERE agent = ANY(%s) GROUP BY 1"
AGENTS = [REPEAT, ONCE]


@pytest.fixture
def wire() -> Iterator[Wire]:
    with providing() as wire:
        yield wire


@pytest.fixture
def courier(make_stack: StackMaker, wire: Wire) -> Iterator[Courier]:
    with receiving() as receiver:
        yield crew(make_stack, receiver, wire)


@pytest.fixture
def courier_of_its_own(make_stack: StackMaker, wire: Wire) -> Iterator[Courier]:
    """With servers that may be killed."""
    with receiving() as receiver:
        yield crew(make_stack, receiver, wire, own_servers=True)


def crew(make_stack: StackMaker, receiver: Receiver, wire: Wire, *, own_servers: bool = False) -> Courier:
    env = {**wire.env, "WAKEFUL_APPS": f"{APPS['WAKEFUL_APPS']},scribe", "WAKEFUL_MODEL": "openai-chat:gpt-4o"}
    courier = Courier(partial(make_stack, own_servers=own_servers), receiver, env)
    for kind in ("web", "dispatcher", "beat", "caller"):
        courier.start(kind)
    courier.start("worker", concurrency=2)
    return courier


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


@dataclass(frozen=True)
class Kill:
    kind: str
    at: float


class Killer:
    """Kills one kind of process after the other, and starts it again."""

    def __init__(self, courier: Courier) -> None:
        self.courier = courier
        self.kills: list[Kill] = []

    def kill_each(self) -> Iterator[Kill]:
        for kind in KINDS:
            time.sleep(EVERY)
            yield self.kill(kind)
        for process in self.courier.processes.values():
            if not process.is_alive():  # Celery's parent ends where a child is killed in its first second
                process.kill()
                process.restart(wait=False)
            process.wait_ready()

    def kill(self, kind: str) -> Kill:
        kill = Kill(kind, time.monotonic())
        self.kills.append(kill)
        if kind in SERVERS:
            server = getattr(self.courier.stack.servers, kind)
            server.kill()
            server.start()
        elif kind == "child":
            if children := self.process("worker").children():
                children[-1].kill()
        else:
            process = self.process(kind)
            process.kill()
            process.restart(wait=False)
        return kill

    def process(self, kind: str) -> Process:
        return self.courier.processes[f"{kind}-1"]

    def of_extra(self, requests: Sequence[Request]) -> Iterator[str]:
        """The kind of the kill that ended each request of a run but the last; "none" where it was none. One kill ends no two requests
        of a run: between two of its requests stands a kill of its own."""
        for request, following in zip(requests, requests[1:], strict=False):
            between = [kill.kind for kill in self.kills if request.at <= kill.at <= following.at]
            yield next((kind for kind in between if kind in MAKERS), "none")


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
def test_hundreds_that_think_are_paid_once_while_each_process_is_killed_in_turn(
    courier_of_its_own: Courier, wire: Wire
) -> None:
    """A kill costs each run one request more at most, and only a kill of what makes requests; none where a request may be made once."""
    courier = courier_of_its_own
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
    for _ in killer.kill_each():
        assert len(wire.requests) <= cap
    eventually(waits_for_room)
    print(
        f"\n{len(killer.kills)} kills under a cap of {cap}: {len(wire.requests)} requests, {statuses(courier)}",
        flush=True,
    )
    assert len(wire.requests) <= cap

    with courier.stack.orm():
        set_cap(budget.pk, Decimal(100 * MANY), by="a test")
    for _ in killer.kill_each():
        pass
    parked = 0
    while set(statuses(courier)) != {"succeeded"}:
        assert time.monotonic() - began < 360, statuses(courier)
        # Before a person has said anything, and after: a request that may be made once was made once.
        assert all(sum(wire.asked(run["id"]).values()) <= 1 for run in found if run["agent"] == ONCE)
        time.sleep(1)
        parked += resolve_all(courier, wire)

    extra = {
        agent: Counter(kind for run in found if run["agent"] == agent for kind in killer.of_extra(wire.of(run["id"])))
        for agent in AGENTS
    }
    print(
        f"{len(killer.kills)} kills: requests more by the kill that ended them: {dict(extra[REPEAT])}, {parked} parked, "
        f"{time.monotonic() - began:.0f} s",
        flush=True,
    )
    assert not extra[ONCE]
    assert not extra[REPEAT]["none"]
    courier.verify()


@contextmanager
def frozen(courier: Courier) -> Iterator[None]:
    """PostgreSQL with all its sessions."""
    postgres = courier.stack.servers.postgres
    assert postgres and postgres.process
    server = psutil.Process(postgres.process.pid)
    processes = [server, *server.children(recursive=True)]
    for process in processes:
        process.suspend()
    yield
    for process in reversed(processes):
        with suppress(psutil.NoSuchProcess):
            process.resume()


@contextmanager
def read_only(courier: Courier) -> Iterator[None]:
    with psycopg.connect(courier.stack.database_url, autocommit=True) as connection:
        for statement in ("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"):
            connection.execute(statement)
        yield
        for statement in ("ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()"):
            connection.execute(statement)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", [frozen, read_only])
def test_requests_in_flight_go_on_while_postgresql_is_frozen_or_read_only(
    courier_of_its_own: Courier, wire: Wire, fault: Callable[[Courier], AbstractContextManager[None]]
) -> None:
    """For several leases: no process can renew, so none has lost what it owns."""
    courier = courier_of_its_own
    held = Held()
    wire.script("talk", Turn("done", faults=[held]))
    found = wake(courier, 10)
    eventually(lambda: len(wire.requests) == len(found))

    with fault(courier):
        time.sleep(3 * LEASE)
    time.sleep(2 * LEASE)  # a caller that took the others for lost would make their requests now
    held.release()

    eventually(lambda: statuses(courier) == {"succeeded": len(found)})
    assert all(wire.asked(run["id"]) == {0: 1} for run in found)
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
        courier, broken, found = with_requests_in_flight(make_stack, receiver, wire, "scribe.talk", patches)
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


def makes_again(make_stack: StackMaker, wire: Wire, **patches: str) -> list[str]:
    """A caller is killed amid requests that may be made only once, beside another one. What is wrong then."""
    wire.script("talk", Turn("done", faults=[Held()]))
    with receiving() as receiver:
        courier, caller, found = with_requests_in_flight(make_stack, receiver, wire, "scribe.talk_once", patches)
        courier.stack.start("caller", env=patches)
        caller.kill()

        def repeated() -> list[str]:
            return [f"made twice: {run['id']}" for run in found if wire.asked(run["id"]) != {0: 1}]

        eventually(lambda: repeated() or len(runs(courier.stack, "status = 'uncertain'")) == len(found))
        courier.stack.stop()
    return repeated()


def with_requests_in_flight(
    make_stack: StackMaker, receiver: Receiver, wire: Wire, event: str, patches: Mapping[str, str]
) -> tuple[Courier, Process, list[dict[str, Any]]]:
    """A caller with these patches, which makes the requests of six runs."""
    env = {**wire.env, "WAKEFUL_APPS": f"{APPS['WAKEFUL_APPS']},scribe,lab", "WAKEFUL_MODEL": "openai-chat:gpt-4o"}
    courier = Courier(make_stack, receiver, env)
    courier.up()
    caller = courier.stack.start("caller", env=patches)
    courier.stack.query(PAUSE)
    found = [courier.run(courier.emit(event)) for _ in range(6)]
    courier.stack.query("UPDATE runs_queue SET paused_at = NULL WHERE name = '*'")
    eventually(lambda: all(wire.asked(run["id"]) == {0: 1} for run in found))
    return courier, caller, found


def ended(courier: Courier, found: list[dict[str, Any]]) -> list[str]:
    wanted = [run["id"] for run in found]
    return [str(run["id"]) for run in runs(courier.stack, "id = ANY(%s) AND status = 'succeeded'", wanted)]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("build", ["whole", "answers_without_a_fence"])
def test_an_answer_of_a_caller_that_lost_its_lease_is_noticed(make_stack: StackMaker, wire: Wire, build: str) -> None:
    wrong = records_for_another(make_stack, wire, LAB_PATCHES="" if build == "whole" else build)

    print(f"\n{build}: {wrong[:2]}", flush=True)
    assert bool(wrong) == (build != "whole")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("build", ["whole", "frees_what_may_be_made_once"])
def test_a_request_that_may_be_made_once_and_is_made_again_is_noticed(
    make_stack: StackMaker, wire: Wire, build: str
) -> None:
    wrong = makes_again(make_stack, wire, LAB_PATCHES="" if build == "whole" else build)

    print(f"\n{build}: {wrong[:2]}", flush=True)
    assert bool(wrong) == (build != "whole")
