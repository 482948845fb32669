"""Whatever comes at whichever moment around a wait's registration wakes its run exactly once.

Failpoints hold the processes still at each moment. WAKEFUL_FULL=1 plays every pair of moments, and more rounds of what is
a matter of luck.
"""

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.courier import Courier, eventually
from tests.support.receiver import receiving
from tests.support.stack import Answer, Process, StackMaker

FULL = bool(os.environ.get("WAKEFUL_FULL"))
ROUNDS = 20 if FULL else 4
REGISTRATION = [
    "before_record_commit",
    "after_record_commit",
    "after_wait_commit",
    "before_look_back",
    "after_look_back",
]
DISPATCH = ["before_waits_are_looked_up", "before_dispatch_commit", "after_dispatch_commit"]
SOME = REGISTRATION if FULL else REGISTRATION[::2]
PAIRS = [(point, moment) for point in REGISTRATION for moment in DISPATCH]
FIRST, SECOND = "event courier.paid#1", "event courier.paid#2"

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def courier(make_shared_stack: StackMaker) -> Iterator[Courier]:
    """A stack with one worker that has a single child: whatever stops there stops alone."""
    with receiving() as receiver:
        courier = Courier(make_shared_stack, receiver)
        courier.up()
        yield courier
        courier.verify()


@pytest.fixture(autouse=True)
def nothing_is_held_afterwards(courier: Courier) -> Iterator[None]:
    yield
    for points in courier.points.values():
        points.release_all()


def hold(courier: Courier, process: str, point: str) -> None:
    courier.points[process].arm(point, "wait")


def until_held(courier: Courier, process: str, point: str) -> None:
    eventually(lambda: courier.points[process].hit(point))


def release(courier: Courier, process: str, point: str) -> None:
    courier.points[process].release(point)


def listen(courier: Courier, *timeouts: Any) -> tuple[str, str]:
    """An event whose run waits for payments of an order, and the order."""
    order = f"order-{courier.sent}"
    return courier.emit("courier.listen", order=order, timeouts=list(timeouts)), order


def pay(courier: Courier, order: str, number: int = 1) -> str:
    return courier.emit("courier.paid", order=order, number=number)


def is_dispatched(courier: Courier, event: str) -> bool:
    query = "SELECT 1 FROM triggers_event WHERE id = %s AND dispatched_at IS NOT NULL"
    return bool(courier.stack.query(query, event))


def assert_woken_once_each(courier: Courier, listening: str, result: list[Any], lost: int = 0) -> None:
    run = courier.in_status(listening, "succeeded")
    assert run["result"] == result
    assert courier.entries(run) == [f"woke-{number}" for number in range(len(result))]
    ends = ["expired" if one is None else "done" for one in result]
    assert courier.waits(run) == list(zip((FIRST, SECOND), ends, strict=False))
    claims = [outcome for outcome in courier.outcomes(run) if outcome != "lost"]
    # A wait for an event that was there already needs no claim of its own.
    assert set(claims[:-1]) == {"waiting"}
    assert len(claims[:-1]) <= len(result)
    assert claims[-1] == "succeeded"
    assert len(courier.outcomes(run)) == len(claims) + lost


# Around the registration


@pytest.mark.parametrize("point", REGISTRATION)
def test_an_event_that_is_dispatched_meanwhile_wakes_the_run_once(courier: Courier, point: str) -> None:
    hold(courier, "worker-1", point)
    listening, order = listen(courier, "30s", "0.5s")
    until_held(courier, "worker-1", point)

    paid = pay(courier, order)
    eventually(lambda: is_dispatched(courier, paid))
    release(courier, "worker-1", point)

    assert_woken_once_each(courier, listening, [1, None])


@pytest.mark.parametrize(("point", "moment"), PAIRS if FULL else PAIRS[::4] + PAIRS[1:2])
def test_an_event_that_is_being_dispatched_meanwhile_wakes_the_run_once(
    courier: Courier, point: str, moment: str
) -> None:
    hold(courier, "worker-1", point)
    listening, order = listen(courier, "30s", "1s")
    until_held(courier, "worker-1", point)

    hold(courier, "dispatcher-1", moment)
    pay(courier, order)
    until_held(courier, "dispatcher-1", moment)
    release(courier, "worker-1", point)
    time.sleep(0.2)  # it looks back, and goes on if it finds something, while the dispatcher is not through
    release(courier, "dispatcher-1", moment)

    assert_woken_once_each(courier, listening, [1, None])


@pytest.mark.parametrize("point", SOME)
def test_two_events_meanwhile_end_two_waits_in_their_order(courier: Courier, point: str) -> None:
    hold(courier, "worker-1", point)
    listening, order = listen(courier, "30s", "30s")
    until_held(courier, "worker-1", point)

    hold(courier, "dispatcher-1", "before_waits_are_looked_up")
    pay(courier, order, 1)
    until_held(courier, "dispatcher-1", "before_waits_are_looked_up")
    pay(courier, order, 2)
    release(courier, "worker-1", point)
    time.sleep(0.1)
    release(courier, "dispatcher-1", "before_waits_are_looked_up")

    assert_woken_once_each(courier, listening, [1, 2])


@pytest.mark.parametrize("point", ["after_record_commit", "after_wait_commit", "before_look_back", "after_look_back"])
def test_the_dispatcher_looks_back_for_an_executor_that_died_before_it_could(courier: Courier, point: str) -> None:
    hold(courier, "worker-1", "before_record_commit")
    courier.points["worker-1"].arm(point, "kill")
    listening, order = listen(courier, "30s", "0.5s")
    until_held(courier, "worker-1", "before_record_commit")

    paid = pay(courier, order)
    eventually(lambda: is_dispatched(courier, paid))
    release(courier, "worker-1", "before_record_commit")
    until_held(courier, "worker-1", point)

    assert_woken_once_each(courier, listening, [1, None])
    release(courier, "worker-1", point)


def test_an_event_that_arrived_in_time_counts_though_the_timeout_passes_before_the_look(courier: Courier) -> None:
    hold(courier, "worker-1", "before_record_commit")
    hold(courier, "worker-1", "after_wait_commit")
    listening, order = listen(courier, "0.3s")
    until_held(courier, "worker-1", "before_record_commit")
    paid = pay(courier, order)
    eventually(lambda: is_dispatched(courier, paid))

    release(courier, "worker-1", "before_record_commit")
    until_held(courier, "worker-1", "after_wait_commit")
    time.sleep(0.6)
    release(courier, "worker-1", "after_wait_commit")

    assert_woken_once_each(courier, listening, [1])


def test_a_worker_killed_before_it_has_registered_a_wait_registers_it_after_all(courier: Courier) -> None:
    courier.points["worker-1"].arm("before_record_commit", "kill")
    listening, order = listen(courier, "30s", "0.5s")
    until_held(courier, "worker-1", "before_record_commit")
    courier.waiting(listening, FIRST)

    pay(courier, order)

    assert_woken_once_each(courier, listening, [1, None], lost=1)
    release(courier, "worker-1", "before_record_commit")


@pytest.mark.parametrize("moment", DISPATCH)
def test_a_dispatcher_killed_over_an_event_that_is_waited_for_leaves_it_to_its_successor(
    courier: Courier, moment: str
) -> None:
    listening, order = listen(courier, "30s", "0.5s")
    courier.waiting(listening, FIRST)
    dispatcher = courier.processes["dispatcher-1"]

    courier.points["dispatcher-1"].arm(moment, "kill")
    pay(courier, order)
    assert dispatcher.wait() == -9
    release(courier, "dispatcher-1", moment)
    dispatcher.restart()

    assert_woken_once_each(courier, listening, [1, None])


# Two things at once


@pytest.fixture
def second_dispatcher(courier: Courier) -> Iterator[Process]:
    process = courier.stack.start("dispatcher")
    yield process
    process.kill()
    courier.stack.processes.remove(process)


def test_an_event_whose_dispatch_ends_after_the_timeout_was_in_time(
    courier: Courier, second_dispatcher: Process
) -> None:
    second_dispatcher.freeze()  # so that it is the first that dispatches
    listening, order = listen(courier, "2s")
    run = courier.waiting(listening, FIRST)
    hold(courier, "dispatcher-1", "before_dispatch_commit")
    pay(courier, order)
    until_held(courier, "dispatcher-1", "before_dispatch_commit")

    second_dispatcher.thaw()
    until_due(courier, run, early=-0.5)
    assert courier.run(listening)["status"] == "waiting"
    release(courier, "dispatcher-1", "before_dispatch_commit")

    assert_woken_once_each(courier, listening, [1])


def test_a_timeout_that_comes_before_the_event_is_looked_up_is_final(
    courier: Courier, second_dispatcher: Process
) -> None:
    second_dispatcher.freeze()
    listening, order = listen(courier, "1s")
    courier.waiting(listening, FIRST)
    hold(courier, "dispatcher-1", "before_waits_are_looked_up")
    pay(courier, order)
    until_held(courier, "dispatcher-1", "before_waits_are_looked_up")

    second_dispatcher.thaw()  # it may dispatch the event in time, too, once the lock is free: both are right, but not both at once
    run = eventually(lambda: courier.in_status(listening, "succeeded"))
    release(courier, "dispatcher-1", "before_waits_are_looked_up")

    assert_woken_once_each(courier, listening, run["result"])


def test_events_that_come_at_the_very_instant_of_the_timeout_wake_once_or_never(
    courier: Courier, second_dispatcher: Process
) -> None:
    for place in range(ROUNDS):
        listening, order = listen(courier, "0.7s")
        until_due(courier, courier.waiting(listening, FIRST), early=place % 4 * 0.01)
        pay(courier, order)

        run = courier.in_status(listening, "succeeded")
        assert_woken_once_each(courier, listening, run["result"])


def until_due(courier: Courier, run: dict[str, Any], early: float) -> None:
    """Wait for the instant at which its open wait is over, or so many seconds before it."""
    query = "SELECT extract(epoch FROM due_at - clock_timestamp())::float AS left FROM runs_wait WHERE run_id = %s"
    for row in courier.stack.query(query, run["id"]):
        time.sleep(max(0, row["left"] - early))


# Approvals


def open_approval(courier: Courier, expires: str) -> tuple[str, str]:
    """An event whose run asks, once it does, and the approval."""
    event = courier.emit("courier.ask", expires=expires)
    run = courier.waiting(event, "approval#1")
    query = "SELECT approval.id FROM runs_approval approval JOIN runs_wait wait ON wait.id = wait_id WHERE run_id = %s"
    return event, str(courier.stack.query(query, run["id"])[0]["id"])


def decide(courier: Courier, approval: str, decision: str, answers: list[Answer]) -> threading.Thread:
    """A person decides, without being waited for."""

    def post() -> None:
        answers.append(courier.stack.api("POST", f"/api/v1/approvals/{approval}/decide/", {"decision": decision}))

    thread = threading.Thread(target=post)
    thread.start()
    return thread


def assert_decided_once(courier: Courier, event: str, decision: str) -> None:
    run = courier.in_status(event, "succeeded")
    assert run["result"] == decision
    assert courier.entries(run) == ["woke-0"]
    assert courier.outcomes(run) == ["waiting", "succeeded"]


def test_a_decision_that_commits_after_the_expiry_was_in_time(courier: Courier) -> None:
    event, approval = open_approval(courier, "1.5s")
    hold(courier, "web-1", "before_decide_commit")
    answers: list[Answer] = []
    person = decide(courier, approval, "approve", answers)
    until_held(courier, "web-1", "before_decide_commit")

    until_due(courier, courier.run(event), early=-0.5)
    release(courier, "web-1", "before_decide_commit")
    person.join()

    assert answers[0].status == 200
    assert_decided_once(courier, event, "approved")


def test_one_of_two_simultaneous_decisions_counts_and_the_other_is_refused(courier: Courier) -> None:
    event, approval = open_approval(courier, "60s")
    hold(courier, "web-1", "before_decide_commit")
    first: list[Answer] = []
    second: list[Answer] = []
    people = [decide(courier, approval, "approve", first)]
    until_held(courier, "web-1", "before_decide_commit")
    people.append(decide(courier, approval, "deny", second))
    time.sleep(0.3)

    release(courier, "web-1", "before_decide_commit")
    for person in people:
        person.join()

    assert (first[0].status, second[0].status) == (200, 409)
    assert_decided_once(courier, event, "approved")


def test_a_decision_at_the_very_instant_of_the_expiry_counts_if_it_was_accepted(
    courier: Courier, second_dispatcher: Process
) -> None:
    for place in range(ROUNDS):
        event, approval = open_approval(courier, "1s")
        until_due(courier, courier.run(event), early=0.03 - place % 4 * 0.01)
        answers: list[Answer] = []
        decide(courier, approval, "approve", answers).join()

        assert answers[0].status in (200, 409)
        assert_decided_once(courier, event, "approved" if answers[0].status == 200 else "expired")


# Children


@pytest.fixture
def childrens_worker(courier: Courier) -> Iterator[Process]:
    """Who has room for all children at once; the other one is the parent's."""
    courier.receiver.gate.clear()
    courier.receiver.at_gate = 0
    process = courier.stack.start("worker", concurrency=3)
    yield process
    courier.receiver.gate.set()
    process.kill()
    courier.stack.processes.remove(process)


def assert_gathered_once(courier: Courier, event: str) -> None:
    run = courier.in_status(event, "succeeded")
    assert run["result"] == [0, 1, 2]
    assert courier.entries(run) == ["woke-0"]
    assert courier.waits(run) == [("join#1", "done")]
    assert [outcome for outcome in courier.outcomes(run) if outcome != "lost"] == ["waiting", "succeeded"]


def test_children_that_end_at_once_wake_their_parent_once(courier: Courier, childrens_worker: Process) -> None:
    for _ in range(ROUNDS):
        courier.receiver.gate.clear()
        courier.receiver.at_gate = 0
        event = courier.emit("courier.spawn")
        courier.waiting(event, "join#1")
        eventually(lambda: courier.receiver.at_gate == 3)

        courier.receiver.gate.set()

        assert_gathered_once(courier, event)


@pytest.mark.parametrize("point", SOME)
def test_children_that_all_end_while_their_parent_begins_to_wait_wake_it_once(
    courier: Courier, childrens_worker: Process, point: str
) -> None:
    # Either worker may claim the parent: only this one's stands still.
    courier.receiver.gate.set()
    childrens_worker.freeze()
    hold(courier, "worker-1", point)
    event = courier.emit("courier.spawn")
    until_held(courier, "worker-1", point)

    childrens_worker.thaw()
    over = "SELECT count(*) AS n FROM runs_run WHERE parent_id = %s AND status = 'succeeded'"
    parent = courier.run(event)
    eventually(lambda: courier.stack.query(over, parent["id"])[0]["n"] == 3, 30)
    eventually(lambda: not courier.stack.query("SELECT 1 FROM runs_outboxmessage WHERE topic = 'child.finished'"))
    release(courier, "worker-1", point)

    assert_gathered_once(courier, event)


@pytest.mark.parametrize("point", ["before_outbox_commit", "after_outbox_commit"])
def test_a_dispatcher_killed_over_the_end_of_the_last_child_leaves_it_to_its_successor(
    courier: Courier, childrens_worker: Process, point: str
) -> None:
    event = courier.emit("courier.spawn")
    courier.waiting(event, "join#1")
    eventually(lambda: courier.receiver.at_gate == 3)
    dispatcher = courier.processes["dispatcher-1"]

    courier.points["dispatcher-1"].arm(point, "kill")
    courier.receiver.gate.set()
    assert dispatcher.wait() == -9
    release(courier, "dispatcher-1", point)
    dispatcher.restart()

    assert_gathered_once(courier, event)
