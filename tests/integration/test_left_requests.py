"""Runs leave their requests to a caller while other runs are ready: a worker with one child, a caller, and a model that answers when
the test lets it. Each request is made and paid once, whatever is killed."""

import signal
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from tests.integration.courier import APPS, Courier, eventually
from tests.integration.protocol import runs
from tests.support.receiver import receiving
from tests.support.stack import StackMaker, within
from tests.support.wire import Call, Held, Status, Turn, Wire, providing

pytestmark = pytest.mark.sampled

MANY = 6
PAUSE = """
INSERT INTO runs_queue (name, paused_at, paused_reason, paused_by) VALUES ('*', now(), '', '')
ON CONFLICT (name) DO UPDATE SET paused_at = now()
"""
LEFT = "SELECT 1 FROM runs_wait WHERE run_id = %s AND kind = 'model'"


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with providing() as wire:
        yield wire


@pytest.fixture(scope="module")
def courier(make_shared_stack: StackMaker, wire: Wire) -> Iterator[Courier]:
    with receiving() as receiver:
        env = {**wire.env, "WAKEFUL_APPS": f"{APPS['WAKEFUL_APPS']},scribe", "WAKEFUL_MODEL": "openai-chat:gpt-4o"}
        courier = Courier(make_shared_stack, receiver, {**env, "WAKEFUL_SHUTDOWN_GRACE": "3s"})
        courier.up()
        courier.start("caller")
        yield courier


def wake_many(courier: Courier, type: str = "scribe.talk", many: int = MANY) -> list[dict[str, Any]]:
    """Runs that become ready together, so that they leave their requests."""
    courier.stack.query(PAUSE)
    events = [courier.emit(type) for _ in range(many)]
    found = [courier.run(event) for event in events]
    courier.stack.query("UPDATE runs_queue SET paused_at = NULL WHERE name = '*'")
    return found


def ended(courier: Courier, run: dict[str, Any]) -> dict[str, Any]:
    return eventually(lambda: runs(courier.stack, "id = %s AND status IN ('succeeded', 'failed')", run["id"]))[0]


def in_flight(wire: Wire, found: list[dict[str, Any]]) -> bool:
    return all(wire.asked(run["id"]) == {0: 1, 1: 1} for run in found)


def assert_paid_once(courier: Courier, wire: Wire, found: list[dict[str, Any]], more: int = 0, at: str = "") -> None:
    """All of them succeed; beyond one request for each turn there were at most `more` for each run."""
    for run in found:
        now = ended(courier, run)
        assert (now["status"], now["result"]) == ("succeeded", "done"), (at, now["error"])
        asked = wire.asked(run["id"])
        assert list(asked) == [0, 1] and sum(asked.values()) <= 2 + more, (at, asked)
        assert courier.receiver.keys("/pay", run["id"]), at
    eventually(lambda: not courier.stack.query("SELECT 1 FROM runs_modelcall"))


def test_runs_that_wait_for_a_model_occupy_no_worker(courier: Courier, wire: Wire) -> None:
    held = Held()
    wire.script("talk", [Call("pay", number=1)], Turn("done", faults=[held]))
    found = wake_many(courier)

    eventually(lambda: in_flight(wire, found))  # at the same time, with one child
    held.release()

    assert_paid_once(courier, wire, found)
    assert [wire.paid(run["id"]) for run in found] == [{0: 1, 1: 1}] * MANY
    assert sum(len(courier.stack.query(LEFT, run["id"])) for run in found) >= 2 * MANY - 1
    courier.verify()


def test_a_lone_run_makes_its_requests_itself(courier: Courier, wire: Wire) -> None:
    wire.script("talk", [Call("pay", number=1)], "done")
    [run] = wake_many(courier, many=1)

    assert_paid_once(courier, wire, [run])
    assert not courier.stack.query(LEFT, run["id"])


CALLER_POINTS = [
    "after_call_taken",
    "after_model_answer",
    "before_answer",
    "before_answer_commit",
    "after_answer_commit",
]
WORKER_POINTS = ["before_record_commit", "after_record_commit", "after_wait_commit"]


@pytest.mark.chaos
@pytest.mark.parametrize("point", CALLER_POINTS)
def test_a_caller_that_is_killed_anywhere_costs_one_request_more_at_most(
    courier: Courier, wire: Wire, point: str
) -> None:
    wire.script("talk", [Call("pay", number=1)], "done")
    points, caller = courier.points["caller-1"], courier.processes["caller-1"]
    points.arm(point, "kill@2")
    found = wake_many(courier)
    eventually(lambda: points.hit(point))
    caller.wait()
    caller.restart()

    assert_paid_once(courier, wire, found, more=1, at=point)
    points.release(point)
    courier.verify()


@pytest.mark.chaos
@pytest.mark.parametrize("point", WORKER_POINTS)
def test_a_run_that_is_killed_while_it_leaves_its_request_makes_it_once(
    courier: Courier, wire: Wire, point: str
) -> None:
    wire.script("talk", [Call("pay", number=1)], "done")
    points = courier.points["worker-1"]
    points.arm(point, "kill@2")
    found = wake_many(courier)
    eventually(lambda: points.hit(point))

    assert_paid_once(courier, wire, found, at=point)
    points.release(point)
    courier.verify()


@pytest.mark.chaos
def test_requests_in_flight_at_a_kill_of_their_caller_are_made_once_more(courier: Courier, wire: Wire) -> None:
    held = Held()
    wire.script("talk", [Call("pay", number=1)], Turn("done", faults=[held]))
    found = wake_many(courier)
    eventually(lambda: in_flight(wire, found))

    courier.processes["caller-1"].kill()
    held.release()
    courier.processes["caller-1"].restart()

    assert_paid_once(courier, wire, found, more=1)
    courier.verify()


@pytest.mark.chaos
def test_without_a_caller_runs_make_the_requests_themselves_that_they_had_left(courier: Courier, wire: Wire) -> None:
    held = Held()
    wire.script("talk", [Call("pay", number=1)], Turn("done", faults=[held]))
    found = wake_many(courier)
    eventually(lambda: in_flight(wire, found))

    courier.processes["caller-1"].kill()
    held.release()

    assert_paid_once(courier, wire, found, more=1)
    courier.processes["caller-1"].restart()
    courier.verify()


@pytest.mark.chaos
def test_a_caller_that_froze_and_lost_its_requests_records_nothing(courier: Courier, wire: Wire) -> None:
    held = Held()
    wire.script("talk", [Call("pay", number=1)], Turn("done", faults=[held]))
    found = wake_many(courier)
    eventually(lambda: in_flight(wire, found))

    courier.processes["caller-1"].freeze()
    held.release()
    courier.start("caller")
    assert_paid_once(courier, wire, found, more=1)
    courier.processes["caller-1"].thaw()

    eventually(
        lambda: (
            "call.late" in courier.processes["caller-1"].output()
            or "caller.lost" in courier.processes["caller-1"].output()
        ),
        20,
    )
    assert_paid_once(courier, wire, found, more=1)
    assert courier.processes["caller-2"].stop() == 0
    courier.verify()


@pytest.mark.chaos
def test_a_stopping_caller_lets_its_requests_end(courier: Courier, wire: Wire) -> None:
    held = Held()
    wire.script("talk", [Call("pay", number=1)], Turn("done", faults=[held]))
    found = wake_many(courier)
    eventually(lambda: in_flight(wire, found))

    courier.processes["caller-1"].signal(signal.SIGTERM)
    held.release()

    assert courier.processes["caller-1"].wait() == 0
    courier.processes["caller-1"].restart()
    assert_paid_once(courier, wire, found)
    courier.verify()


@pytest.mark.chaos
def test_a_stopping_caller_leaves_slow_requests_to_the_next_one(courier: Courier, wire: Wire) -> None:
    held = Held()
    wire.script("talk", [Call("pay", number=1)], Turn("done", faults=[held]))
    found = wake_many(courier)
    eventually(lambda: in_flight(wire, found))

    with within(10):
        assert courier.processes["caller-1"].stop() == 0
    held.release()
    courier.processes["caller-1"].restart()

    assert_paid_once(courier, wire, found, more=1)
    courier.verify()


@pytest.mark.chaos
def test_a_caller_that_stops_for_longer_than_a_lease_records_its_requests_and_drops_what_is_cancelled(
    courier: Courier, wire: Wire
) -> None:
    held = Held()
    wire.script("talk", [Call("pay", number=1)], Turn("done", faults=[held]))
    courier.processes["caller-1"].stop()
    patient = courier.stack.start("caller", env={"WAKEFUL_SHUTDOWN_GRACE": "120s"})
    cancelled, *found = wake_many(courier)
    eventually(lambda: in_flight(wire, [cancelled, *found]))

    patient.signal(signal.SIGTERM)
    eventually(
        lambda: courier.stack.query("SELECT 1 FROM runs_worker WHERE kind = 'caller' AND draining_at IS NOT NULL")
    )
    with within(5):
        assert courier.stack.api("POST", f"/api/v1/runs/{cancelled['id']}/cancel/").status == 200
        eventually(lambda: wire.of(cancelled["id"])[1].end == "left", 40)
    time.sleep(3 + 2 + 2)  # a lease, and a look of the dispatcher
    held.release()

    assert patient.wait() == 0
    courier.processes["caller-1"].restart()
    assert_paid_once(courier, wire, found)
    courier.verify()


def test_a_stop_of_all_agents_cuts_the_requests_and_a_start_makes_them_again(courier: Courier, wire: Wire) -> None:
    held = Held()
    wire.script("talk", [Call("pay", number=1)], Turn("done", faults=[held]))
    found = wake_many(courier)
    eventually(lambda: in_flight(wire, found))

    with within(5):
        courier.stack.manage("stop", "--all", "--reason", "a test")
        eventually(lambda: all(wire.of(run["id"])[1].end == "left" for run in found))
    held.release()
    courier.stack.manage("start", "--all")

    assert_paid_once(courier, wire, found, more=1)
    courier.verify()


@pytest.mark.chaos
def test_cancelled_runs_cut_their_requests(courier: Courier, wire: Wire) -> None:
    wire.script("talk", [Call("pay", number=1)], Turn("done", faults=[Held()]))
    found = wake_many(courier)
    eventually(lambda: in_flight(wire, found))

    with within(5):
        for run in found:
            assert courier.stack.api("POST", f"/api/v1/runs/{run['id']}/cancel/").status == 200
        eventually(lambda: all(wire.of(run["id"])[1].end == "left" for run in found))

    assert {runs(courier.stack, "id = %s", run["id"])[0]["status"] for run in found} == {"cancelled"}
    eventually(lambda: not courier.stack.query("SELECT 1 FROM runs_modelcall"))


@pytest.mark.chaos
def test_a_busy_provider_is_asked_again_when_it_says(courier: Courier, wire: Wire) -> None:
    wire.script("talk", [Call("pay", number=1)], Turn("done", faults=[Status(429, retry_after=1)]))
    found = wake_many(courier)

    assert_paid_once(courier, wire, found, more=1)
    assert [wire.paid(run["id"]) for run in found] == [{0: 1, 1: 1}] * MANY


@pytest.mark.chaos
def test_what_a_caller_cannot_make_fails_as_the_run_would_have_failed(courier: Courier, wire: Wire) -> None:
    wire.script("talk", Turn("done", faults=[Status(400)] * 3))
    found = wake_many(courier)

    for run in found:
        now = ended(courier, run)
        assert now["status"] == "failed" and "400" in now["error"]


@pytest.mark.chaos
def test_a_cap_holds(courier: Courier, wire: Wire) -> None:
    wire.script("talk", [Call("pay", number=1)], "done")
    # A cap counts what its day has used before.
    made = "SELECT count(*) AS n FROM runs_step JOIN runs_run run ON run.id = run_id WHERE kind = 'model' AND run.agent = 'talk'"
    used = courier.stack.query(f"{made} AND runs_step.status = 'done'")[0]["n"]
    with courier.stack.orm():
        from runs.budgets.caps import create_budget, set_cap
        from runs.models import BudgetWindow

        budget = create_budget(
            scope="agent", name="talk", period="day", measure="requests", cap=Decimal(used + MANY), by="a test"
        )
    found = wake_many(courier)
    budgeted = "SELECT 1 FROM runs_wait WHERE status = 'open' AND kind = 'budget'"

    def asked() -> int:
        return sum(sum(wire.asked(run["id"]).values()) for run in found)

    eventually(lambda: asked() == MANY and courier.stack.query(budgeted))
    with courier.stack.orm():
        set_cap(budget.pk, Decimal(used + 10 * MANY), by="a test")

    assert_paid_once(courier, wire, found)
    with courier.stack.orm():
        window = BudgetWindow.objects.get(budget=budget)
        assert window.spent == used + 2 * MANY and window.reserved == 0
        set_cap(budget.pk, None, by="a test")
    courier.verify()
