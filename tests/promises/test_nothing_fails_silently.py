"""An event that matched a trigger and started no run has a recorded reason; what fails is listed and can be requeued."""

from collections.abc import Callable
from uuid import UUID

import pytest

from agents import AgentRun, Permanent
from runs.actions.event_runs import runs_of_event
from runs.actions.requeue import requeue
from runs.claim import Claim, claim_next
from runs.executor import execute
from runs.models import NIL, Run, Worker
from tests.integration.protocol import effects, emit, in_status, outcomes, shop_stack
from tests.support.stack import StackMaker
from tests.support.triggers import make_event, make_paused_trigger, make_trigger
from triggers.dispatch.batch import dispatch
from triggers.dispatch.hold import resume
from triggers.dispatch.rules import Rules
from triggers.models import Decision


@pytest.mark.django_db
def test_skip_leaves_a_decision_that_names_the_live_run() -> None:
    make_trigger(overlap="skip")
    first, second = make_event(), make_event()

    dispatch(Rules())

    [run] = runs_of_event(first.id)
    decision = Decision.objects.get()
    assert (decision.event_id, decision.outcome, decision.run_id) == (second.id, "overlap", run.id)


@pytest.mark.django_db
@pytest.mark.parametrize("filter", ["event.data.nothing > 1", "event.data", "event.data.amount +"])
def test_a_filter_that_fails_is_a_decision_and_stops_no_one_else(filter: str) -> None:
    make_trigger("broken", filter=filter)
    make_trigger("works")
    event = make_event(data={"amount": 500})

    dispatch(Rules())

    assert [run.trigger for run in runs_of_event(event.id)] == ["works"]
    decision = Decision.objects.get()
    assert (decision.outcome, decision.trigger.slug) == ("error", "broken")
    assert decision.reason


@pytest.mark.django_db
def test_events_of_a_paused_trigger_are_held_and_run_on_resume() -> None:
    trigger = make_paused_trigger()
    event = make_event()
    dispatch(Rules())
    assert Decision.objects.get().outcome == "held"

    resume(trigger, held="run", by="cli:ada")
    dispatch(Rules())

    [run] = runs_of_event(event.id)
    decision = Decision.objects.get()
    assert (decision.outcome, decision.run_id, run.replay_id) == ("resumed", run.id, UUID(NIL))


@pytest.mark.django_db
def test_a_failed_run_requeued_runs_with_fresh_attempts(claim_for: Callable[..., Claim], worker: Worker) -> None:
    broken = [True]

    def body(run: AgentRun) -> str:
        if broken:
            raise Permanent("broken")
        return "mended"

    claim = claim_for(body)
    execute(claim)
    broken.clear()

    requeue(claim.run_id, by="cli:ada")
    again = claim_next(worker.id, "default", {"greeter": "1"})
    assert again is not None
    execute(again)

    run = Run.objects.get()
    assert (run.status, run.result, run.attempt, run.error) == ("succeeded", "mended", 1, "")


def test_a_run_that_kills_its_process_ends_among_the_failed(make_stack: StackMaker) -> None:
    stack = shop_stack(make_stack)
    stack.start("worker", concurrency=1, env={"WAKEFUL_FAILPOINTS": "after_body=kill"})
    event = emit(stack, "sleep.a", "1", key="k", seconds=0)

    run = in_status(stack, event, "failed")

    assert outcomes(stack, run) == ["lost"] * 4
    assert effects(stack, event) == 0
