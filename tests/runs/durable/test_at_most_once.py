"""What may happen at most once, where something else happens at the same time."""

import contextlib
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now

from agents import AgentRun, Retry, StepFailed
from agents.journal.engine import Journal
from agents.journal.protocol import Place, StepRequest
from agents.kernel.effects import Effects
from runs.actions.resolve import resolve
from runs.attempt.ownership import open_session
from runs.body import run_of
from runs.db.session import writing
from runs.durable.progress import record_late
from runs.durable.store import DatabaseStore
from runs.executor import execute
from runs.models import Notification, Step, Worker
from runs.processes.rescue import lost
from tests.runs.db.test_session import end_session
from tests.runs.durable.test_claims_of_the_docs import in_another_session, park
from tests.support.durable import Lab, lab
from tests.support.runs import make_run
from tests.support.triggers import make_event
from triggers.models import Event

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_body_does_not_go_on_past_an_intent_that_could_not_be_taken_back(lab: Lab) -> None:
    def refuse() -> None:
        end_session()
        raise Retry("not now")

    def body(run: AgentRun) -> str:
        with contextlib.suppress(Exception):
            run.step("pay", refuse, effect="at_most_once")
        return "went on"

    run = lab.later(lab.run(body, policy={"retries": 1}))

    assert (run.status, Step.objects.get().status) == ("uncertain", "started")


def test_tries_under_another_effect_are_no_attempts_of_a_step_that_may_now_be_made_once(lab: Lab) -> None:
    """A deploy has changed its effect. `verify` holds that such a step has one attempt."""

    def refuse() -> None:
        raise ConnectionError("not now")

    run = lab.run(lambda run: run.step("pay", refuse, effect="idempotent", retries=2))
    assert (run.status, Step.objects.get().attempts) == ("queued", 1)
    lab.declare(lambda run: run.step("pay", lambda: "paid", effect="at_most_once"))

    assert lab.later(run).result == "paid"
    step = Step.objects.get()
    assert (step.effect, step.attempts) == ("at_most_once", 1)


def test_events_of_a_late_answer_are_not_lost(lab: Lab) -> None:
    def charge(run: AgentRun) -> str:
        run.emit("paid", {"cents": 100})
        run.notify("Paid")
        in_another_session(lambda: park(run))
        return "ch_1"

    run = lab.run(lambda run: run.step("charge", charge, run, effect="at_most_once"))

    assert (run.status, run.result) == ("succeeded", "ch_1")
    assert Event.objects.get(type="paid").data == {"cents": 100}
    assert Notification.objects.get().text == "Paid"


@pytest.mark.parametrize("effect", ["idempotent", "at_most_once"])
def test_a_call_with_invalid_effects_has_failed(lab: Lab, effect: Any) -> None:
    def call(run: AgentRun) -> None:
        run.emit("said", object())

    def body(run: AgentRun) -> str:
        try:
            run.step("call", call, run, effect=effect)
        except StepFailed as error:
            return error.kind
        return "done"

    run = lab.run(body)

    assert (run.status, run.result, Step.objects.get().status) == ("succeeded", "Permanent", "failed")


def test_an_answer_that_is_recorded_as_the_run_is_being_parked_is_not_missed(lab: Lab) -> None:
    def die() -> None:
        raise SystemExit

    def pay(run: AgentRun) -> Any:
        return run.step("pay", die, effect="at_most_once")

    def hear_late(run: AgentRun) -> Any:
        in_another_session(lambda: record_late(claim, "pay", '"paid"', Effects()))
        return pay(run)

    lab.declare(pay)
    run = make_run(event_id=make_event().id, trigger="durable", policy={"retries": 1, "durable": True})
    [claim] = filter(None, [lab.claim()])
    execute(claim)
    lab.declare(hear_late)
    run = lab.later(run)

    assert (run.status, run.result) == ("succeeded", "paid")


def test_a_worker_that_stops_before_the_call_leaves_no_uncertain_run(lab: Lab) -> None:
    calls: list[str] = []

    def body(run: AgentRun) -> None:
        in_another_session(stop_worker)
        run.step("pay", lambda: calls.append("pay"), effect="at_most_once")

    def stop_worker() -> None:
        with writing():
            Worker.objects.update(draining_at=Now())

    run = lab.run(body)
    assert (run.status, calls, Step.objects.count()) == ("queued", [], 0)

    Worker.objects.update(draining_at=None)
    lab.declare(lambda run: run.step("pay", lambda: calls.append("pay"), effect="at_most_once"))
    assert (lab.go_on(run).status, calls) == ("succeeded", ["pay"])


class ProcessDied(BaseException):
    """Passes through everything, as a kill -9 does."""


def test_a_run_whose_process_died_in_a_call_on_its_last_attempt_is_left_to_a_person(lab: Lab) -> None:
    calls: list[str] = []

    def die() -> None:
        calls.append("call")
        raise ProcessDied

    lab.declare(lambda run: run.step("pay", die, effect="at_most_once"))
    made = make_run(event_id=make_event().id, trigger="durable", policy={"retries": 0, "durable": True})
    claim = lab.claim()
    assert claim
    open_session(claim, begins=True)
    with pytest.raises(ProcessDied):
        run_of(claim, Journal(DatabaseStore(claim, [], []))).step("pay", die, effect="at_most_once")
    connection.close()
    made.refresh_from_db()

    assert lost(made, "its worker was lost")

    made.refresh_from_db()
    assert (made.status, made.error) == ("uncertain", "its worker was lost")
    assert "'pay'" in made.status_reason
    resolve(made.id, outcome="happened", by="ann")
    assert (lab.go_on(made).status, calls) == ("succeeded", ["call"])


def test_a_body_that_fails_beside_a_call_with_an_unknown_outcome_leaves_that_to_a_person(lab: Lab) -> None:
    def body(run: AgentRun) -> None:
        step = StepRequest(place=Place(name="pay", key="1"), effect="at_most_once")
        assert run._journal
        run._journal.begin(step)  # a thread of the body's own is in the call
        raise ValueError("the body fails meanwhile")

    run = lab.run(body)

    assert (run.status, run.error) == ("uncertain", "ValueError: the body fails meanwhile")
    assert "'pay:1'" in run.status_reason
