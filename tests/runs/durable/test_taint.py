"""Untrusted data taints a run, and whatever comes of it: events, children, wakes, state, forks."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from agents import AgentRun, Permanent
from agents.models import AgentState
from runs.actions.fork import fork
from runs.actions.requeue import requeue
from runs.api.runs_json import RunSerializer
from runs.models import Notification, OutboxMessage, Run
from tests.support.durable import Lab, lab
from tests.support.runs import make_run
from tests.support.triggers import make_event, make_trigger
from triggers.api.events_json import EventSerializer
from triggers.models import Event

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


def tainting(act: Callable[[AgentRun], Any]) -> Callable[[AgentRun], Any]:
    """A body that has seen untrusted data when it acts."""

    def body(run: AgentRun) -> Any:
        run.taint()
        return act(run)

    return body


def test_a_run_that_has_seen_untrusted_data_is_tainted_and_stays_so(lab: Lab) -> None:
    tainted = lab.run(tainting(lambda run: None))
    clean = lab.run(lambda run: None)

    assert (tainted.is_tainted, clean.is_tainted) == (True, False)
    with pytest.raises(IntegrityError, match="run_stays_tainted"):
        Run.objects.filter(pk=tainted.pk).update(is_tainted=False)


def test_the_commit_of_a_step_shows_it_before_the_run_ends(lab: Lab) -> None:
    def body(run: AgentRun) -> None:
        run.step("before", lambda: None)
        seen.append(Run.objects.get(pk=run.id).is_tainted)
        run.taint()
        run.step("after", lambda: None)
        seen.append(Run.objects.get(pk=run.id).is_tainted)
        run.wait_for_signal("go")

    seen: list[bool] = []
    run = lab.run(body)

    assert (seen, run.status, run.is_tainted) == ([False, True], "waiting", True)


def test_taint_survives_a_failure_a_requeue_and_a_fork(lab: Lab) -> None:
    def body(run: AgentRun) -> None:
        run.step("tainting", lambda: run.taint())
        taints.append(run.is_tainted)
        raise Permanent("stop")

    taints: list[bool] = []
    failed = lab.run(body)
    again = lab.go_on(requeue(failed.pk, by="test"))
    forked = lab.go_on(fork(again.pk, by="test", step="tainting"))

    assert (failed.status, taints) == ("failed", [True, True, True])  # the step that tainted is not done again
    assert (again.is_tainted, forked.is_tainted) == (True, True)


def test_an_event_that_it_emits_is_tainted_and_so_is_the_run_that_this_wakes(lab: Lab) -> None:
    seen: list[tuple[bool, bool]] = []
    lab.declare(lambda run: seen.append((run.is_tainted, run.event.is_tainted)), name="other")
    make_trigger("other", types=["told.*"])

    lab.run(tainting(lambda run: run.emit("told.tainted")))
    lab.run(lambda run: run.emit("told.clean"))

    assert seen == [(True, True), (False, False)]
    assert dict(Event.objects.filter(type__startswith="told").values_list("type", "is_tainted")) == {
        "told.tainted": True,
        "told.clean": False,
    }
    assert list(Run.objects.filter(agent="other").order_by("seq").values_list("is_tainted", flat=True)) == [True, False]


def test_an_event_that_was_emitted_before_the_taint_is_not_tainted(lab: Lab) -> None:
    def body(run: AgentRun) -> None:
        run.emit("before")
        run.taint()
        run.emit("after")

    lab.run(body)

    assert dict(Event.objects.filter(type__in=["before", "after"]).values_list("type", "is_tainted")) == {
        "before": False,
        "after": True,
    }


def everything(run: AgentRun) -> None:
    run.emit("told")
    run.spawn("child")
    run.wake_in("1h")
    run.state.set("note", "x")


def before_and_after(run: AgentRun) -> None:
    everything(run)
    run.taint()


@pytest.mark.parametrize("durable", [False, True])
def test_effects_of_the_commit_that_taints_are_tainted_also_those_before(lab: Lab, durable: bool) -> None:
    lab.declare(lambda run: run.is_tainted, name="child")

    def body(run: AgentRun) -> None:
        run.step("both", before_and_after, run) if durable else before_and_after(run)

    lab.run(body, declared={"durable": durable}, trigger_id=make_trigger("durable", types=[]).pk)
    OutboxMessage.objects.update(available_at=Now())
    lab.look()

    assert Event.objects.get(type="told").is_tainted
    assert Event.objects.get(type="run.wakeup").is_tainted
    assert Run.objects.get(agent="child").is_tainted
    assert AgentState.objects.get().is_tainted


def test_effects_of_the_steps_before_are_not_and_steps_of_a_clean_run_neither(lab: Lab) -> None:
    def body(run: AgentRun) -> None:
        run.step("before", lambda: run.state.set("before", 1))
        run.step("taint", run.taint)

    lab.run(body)

    assert not AgentState.objects.get().is_tainted


@pytest.mark.parametrize("durable", [False, True])
def test_a_child_is_tainted_and_taints_a_parent_that_reads_its_result(lab: Lab, durable: bool) -> None:
    lab.declare(lambda run: run.is_tainted, name="child", durable=durable)
    lab.declare(tainting(lambda run: "read"), name="reader")

    def parent(run: AgentRun) -> list[Any]:
        clean = run.gather(run.spawn("child"))
        run.gather(run.spawn("reader"))
        return [*clean, *run.gather(run.spawn("child"))]

    run = lab.run(parent)

    assert run.result == [False, True]
    assert run.is_tainted


def test_a_wake_that_it_sets_is_tainted(lab: Lab) -> None:
    trigger = make_trigger("durable", types=[])
    lab.run(tainting(lambda run: run.wake_in("1h")), trigger_id=trigger.pk)

    OutboxMessage.objects.update(available_at=Now())
    lab.declare(lambda run: None)
    lab.go_on(Run.objects.get())

    assert Event.objects.get(type="run.wakeup").is_tainted
    assert Run.objects.order_by("seq").last().is_tainted  # type: ignore[union-attr]


def test_state_that_it_sets_is_tainted_and_taints_who_reads_it_until_a_clean_run_writes_it(lab: Lab) -> None:
    lab.run(tainting(lambda run: run.state.set("note", "from outside")))
    reader = lab.run(lambda run: [run.state.get("note"), run.is_tainted])
    blind = lab.run(lambda run: run.state.set("note", "ours"))
    after = lab.run(lambda run: run.state.get("note"))

    assert (reader.result, reader.is_tainted) == (["from outside", True], True)
    assert (blind.is_tainted, after.is_tainted) == (False, False)
    assert AgentState.objects.get().is_tainted is False


def test_state_read_inside_a_step_taints_also_on_the_replay_that_does_not_read_it_again(lab: Lab) -> None:
    AgentState.objects.create(agent="durable", name="note", value="x", is_tainted=True)

    def body(run: AgentRun) -> bool:
        run.step("read", lambda: run.state.get("note"))
        if run.attempt and not crashed:
            crashed.append(True)
            raise Lost
        return run.is_tainted

    class Lost(Exception):
        pass

    crashed: list[bool] = []
    run = lab.run(body, policy={"retries": 1})

    assert lab.later(run).result is True


def test_an_atomic_agent_is_tainted_by_state_too(lab: Lab) -> None:
    AgentState.objects.create(agent="plain", name="note", value="x", is_tainted=True)
    lab.declare(lambda run: [run.state.get("note"), run.emit("told")], name="plain", durable=False)

    run = lab.go_on(make_run(trigger="plain", event_id=make_event().id))

    assert (run.status, run.is_tainted) == ("succeeded", True)
    assert Event.objects.get(type="told").is_tainted


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("error", [Permanent("stop"), RuntimeError("stop"), None], ids=repr)
def test_a_run_that_fails_is_tainted_too(lab: Lab, error: Exception | None, durable: bool) -> None:
    def body(run: AgentRun) -> Any:
        run.taint()
        if error:
            raise error
        return object()  # no JSON

    run = lab.run(body, declared={"durable": durable}, policy={"durable": durable})

    assert (run.status, run.is_tainted) == ("failed", True)


def test_an_event_that_it_waited_for_taints(lab: Lab) -> None:
    def body(run: AgentRun) -> list[bool]:
        run.wait_for_event("paid")
        before = run.is_tainted
        run.wait_for_event("paid")
        return [before, run.is_tainted]

    run = lab.run(body)
    make_event(type="paid")
    lab.go_on(run)
    make_event(type="paid", is_tainted=True)

    assert lab.go_on(run).result == [False, True]


def test_a_tainted_event_that_joins_a_run_or_a_window_taints_the_run(lab: Lab) -> None:
    lab.declare(lambda run: None, name="joiner")
    lab.declare(lambda run: None, name="batcher")
    make_trigger("joiner", types=["come"], key="'one'", overlap="queue_one")
    make_trigger("batcher", types=["come"], policy={"batch": 3})
    make_event(type="come")
    lab.look()
    running = lab.claim()  # what comes now waits behind it, and is handled together
    assert running
    make_event(type="come")
    lab.look()
    make_event(type="come", is_tainted=True)
    lab.look()

    assert dict(Run.objects.exclude(pk=running.run_id).values_list("agent", "is_tainted")) == {
        "joiner": True,
        "batcher": True,
    }


def test_an_event_from_outside_is_not_tainted_and_no_tainted_event_becomes_clean() -> None:
    assert make_event(data={"text": "anything"}).is_tainted is False

    tainted = make_event(is_tainted=True)
    with pytest.raises(IntegrityError, match="immutable"), transaction.atomic():
        Event.objects.filter(pk=tainted.pk).update(is_tainted=False)


def test_the_api_shows_the_taint_of_runs_and_events(lab: Lab) -> None:
    run = lab.run(tainting(lambda run: run.emit("told")))

    assert RunSerializer(run).data["is_tainted"] is True
    assert EventSerializer(Event.objects.get(type="told")).data["is_tainted"] is True


def test_three_notifications_of_a_tainted_run_are_urgent_and_later_ones_are_not(lab: Lab) -> None:
    def page(run: AgentRun) -> None:
        def several() -> None:
            for text in ("two", "three", "four"):
                run.notify(text, urgency="high")

        run.notify("one", urgency="high")
        run.step("more", several)
        run.notify("low", urgency="low")
        run.notify("five", urgency="high")

    assert lab.run(tainting(page)).status == "succeeded"

    urgencies = dict(Notification.objects.values_list("text", "urgency"))
    assert urgencies == {
        "one": "high", "two": "high", "three": "high", "four": "normal", "low": "low", "five": "normal"
    }  # fmt: skip


def test_a_run_that_is_not_tainted_may_call_for_people_as_often_as_it_likes(lab: Lab) -> None:
    def page(run: AgentRun) -> None:
        for number in range(5):
            run.notify(str(number), urgency="high")

    lab.run(page)

    assert set(Notification.objects.values_list("urgency", flat=True)) == {"high"}
