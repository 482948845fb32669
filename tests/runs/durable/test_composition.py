"""Agents that start other agents, wait for them, and wake themselves: bodies, workers and the dispatcher together."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.utils import timezone

from agents import AgentRun, Permanent
from agents.exceptions import ChildFailed
from runs.actions.requeue import requeue
from runs.models import OutboxMessage, Run, Step
from tests.support.durable import Lab, lab
from tests.support.triggers import make_trigger
from triggers.models import Event, Schedule

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


def double(run: AgentRun) -> int:
    Group.objects.create(name=str(run.id))
    return int(run.input) * 2


def children_of(run: Run) -> list[Run]:
    return list(Run.objects.filter(parent_id=run.id).order_by("seq"))


def hear(lab: Lab, run: Run) -> Run:
    """The message that a run has finished is delivered half a second later: as if that were over."""
    OutboxMessage.objects.filter(topic="run.finished").update(available_at=timezone.now())
    return lab.go_on(run)


def test_a_parent_gathers_results_in_its_own_order(lab: Lab) -> None:
    lab.declare(double, "double", durable=False)

    def body(run: AgentRun) -> Any:
        return run.gather(*[run.spawn("double", n) for n in (3, 1, 2)])

    run = lab.run(body)

    assert (run.status, run.result) == ("succeeded", [6, 2, 4])
    assert Group.objects.count() == 3
    assert [(child.depth, child.root_id, child.chain) for child in children_of(run)] == [
        (1, run.root_id, ["durable"])
    ] * 3


def test_children_of_children_are_waited_for_at_every_level(lab: Lab) -> None:
    lab.declare(double, "double", durable=False)
    lab.declare(lambda run: sum(run.gather(run.spawn("double", run.input), run.spawn("double", run.input))), "twice")

    run = lab.run(lambda run: run.gather(run.spawn("twice", 1), run.spawn("twice", 10)))

    assert run.result == [4, 40]
    assert Run.objects.count() == 7


def test_a_crash_after_a_spawn_makes_no_second_child(lab: Lab) -> None:
    lab.declare(double, "double", durable=False)
    crashes = [True]

    def body(run: AgentRun) -> Any:
        child = run.spawn("double", 4)
        if crashes.pop() if crashes else False:
            raise RuntimeError("the process is gone")
        return run.gather(child)

    run = lab.run(body, policy={"retries": 1})
    run = lab.later(run)

    assert (run.status, run.result) == ("succeeded", [8])
    assert len(children_of(run)) == 1


def test_a_child_is_spawned_with_the_step_or_not_at_all(lab: Lab) -> None:
    lab.declare(double, "double", durable=False)

    def spawn_and_fail(run: AgentRun) -> None:
        run.spawn("double", 4)
        raise Permanent("no")

    run = lab.run(lambda run: run.step("both", spawn_and_fail, run))

    assert run.status == "failed"
    assert not children_of(run)


def test_an_atomic_agent_spawns_with_its_own_commit(lab: Lab) -> None:
    lab.declare(double, "double", durable=False)

    def body(run: AgentRun) -> str:
        return str(run.spawn("double", 5).id)

    run = lab.run(body, declared={"durable": False}, policy={"durable": False})

    [child] = children_of(run)
    assert (child.status, child.result, str(child.id)) == ("succeeded", 10, run.result)


def test_the_failure_of_a_child_is_raised_to_the_parent_which_may_go_on(lab: Lab) -> None:
    def fail(run: AgentRun) -> None:
        raise Permanent("no parcel")

    lab.declare(fail, "fail", durable=False)

    def body(run: AgentRun) -> Any:
        try:
            run.gather(run.spawn("fail"))
        except ChildFailed as failed:
            return failed.status

    run = lab.run(body)

    assert (run.status, run.result) == ("succeeded", "failed")


def test_a_parent_that_stops_waiting_leaves_its_child_alone(lab: Lab) -> None:
    lab.declare(lambda run: run.sleep("1h"), "slow")

    def body(run: AgentRun) -> str:
        try:
            run.join(run.spawn("slow"), timeout="1m")
        except TimeoutError:
            return "late"
        return "in time"

    run = lab.run(body)
    run = lab.later(run)

    assert (run.status, run.result) == ("succeeded", "late")
    assert [child.status for child in children_of(run)] == ["waiting"]


def test_a_failed_parent_that_is_requeued_goes_on_with_the_same_children(lab: Lab) -> None:
    lab.declare(double, "double", durable=False)
    broken = [True]

    def body(run: AgentRun) -> Any:
        given = run.gather(run.spawn("double", 4))
        if broken:
            raise Permanent("not today")
        return given

    run = lab.run(body)
    assert run.status == "failed"
    hear(lab, run)
    broken.clear()
    requeue(run.id, by="ada")
    run = lab.go_on(run)

    assert (run.status, run.result) == ("succeeded", [8])
    assert len(children_of(run)) == 1


def test_a_run_spawned_by_another_has_no_trigger_to_wake(lab: Lab) -> None:
    lab.declare(lambda run: run.wake_in("1h"), "waker")

    run = lab.run(lambda run: run.join(run.spawn("waker"))[0].error)

    assert "no trigger of its own" in str(run.result)


def test_a_durable_run_sets_its_next_wake_once_however_often_its_body_is_replayed(lab: Lab) -> None:
    trigger = make_trigger("durable")

    def body(run: AgentRun) -> None:
        run.wake_in("1h", {"round": 2}, reason="look again")
        run.sleep("1m")
        run.schedule("nightly", cron="0 3 * * *")
        run.sleep("1m")

    run = lab.run(body, trigger_id=trigger.id)
    run = lab.later(lab.later(run))

    assert run.status == "succeeded"
    [message] = OutboxMessage.objects.filter(topic="wakeup")
    assert timedelta(hours=1) <= message.available_at - message.created_at < timedelta(minutes=61)
    assert [str(schedule) for schedule in Schedule.objects.filter(trigger=trigger)] == ["durable/nightly"]

    OutboxMessage.objects.filter(pk=message.pk).update(available_at=timezone.now())
    lab.go_on(run)

    assert Event.objects.get(type="run.wakeup").data == {"round": 2}
    assert Run.objects.filter(trigger_id=trigger.id).count() == 2


def test_a_wake_for_this_very_moment_comes_when_loops_may_go_round(lab: Lab, settings: Any) -> None:
    settings.WAKEFUL_LOOP_RATE = "1/1m"
    trigger = make_trigger("durable")

    lab.run(lambda run: run.wake_in(1), trigger_id=trigger.id, declared={"durable": False}, policy={"durable": False})

    message = OutboxMessage.objects.get(topic="wakeup")
    assert timedelta(minutes=1) <= message.available_at - message.created_at < timedelta(minutes=2)


def test_one_wake_over_the_limit_fails_the_run(lab: Lab, settings: Any) -> None:
    settings.WAKEFUL_MAX_WAKES = 2

    run = lab.run(lambda run: [run.wake_in("1h") for _ in range(3)])

    assert run.status == "failed"
    assert "WAKEFUL_MAX_WAKES" in run.error
    assert Step.objects.filter(run=run, status="done").count() == 2


@pytest.mark.parametrize(("slept", "is_loop"), [(timedelta(seconds=2), True), (timedelta(seconds=3), False)])
def test_only_a_sleep_as_long_as_the_rate_demands_begins_a_new_chain(
    lab: Lab, settings: Any, slept: timedelta, is_loop: bool
) -> None:
    settings.WAKEFUL_LOOP_RATE = "20/1m"
    make_trigger("end", types=["end"])
    lab.declare(double, "end", durable=False)

    def body(run: AgentRun) -> None:
        run.sleep(slept)
        run.emit("end")

    run = lab.run(body, chain=["end"], depth=3)
    lab.later(run)

    emitted = Event.objects.get(type="end")
    assert (emitted.chain, emitted.depth) == ((["end", "durable"], 4) if is_loop else (["durable"], 1))
