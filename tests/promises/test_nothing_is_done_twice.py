"""One run per trigger and event; what a run did commits whole or not at all; what is not proved is not repeated."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group

from agents import AgentRun
from runs.actions.approve import decide
from runs.actions.event_runs import runs_of_event
from runs.claim import Claim
from runs.exceptions import IllegalState
from runs.executor import execute
from runs.models import Approval, Attempt, AuditEntry, Notification, OutboxMessage, ProcessedEvent, Run
from tests.support.durable import Lab, lab, record_with
from tests.support.journals import make_asking_run
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.models import Event

__all__ = ["lab"]


class Crash(BaseException):
    """The process is gone."""


@pytest.mark.django_db
def test_an_event_dispatched_twice_starts_no_second_run() -> None:
    make_trigger()
    event = make_event()
    dispatch(Rules())

    Event.objects.update(dispatched_at=None)
    assert dispatch(Rules()).dispatched == 1

    assert len(runs_of_event(event.id)) == 1


@pytest.mark.django_db
def test_success_commits_writes_result_ledger_events_and_notices_together(claim_for: Callable[..., Claim]) -> None:
    def body(run: AgentRun) -> dict[str, Any]:
        Group.objects.create(name=run.event.data["name"])
        run.emit("visitor.greeted", {"name": "Ada"})
        run.notify("greeted", urgency="low")
        return {"greeted": 1}

    claim = claim_for(body)
    execute(claim)

    run = Run.objects.get()
    assert (run.status, run.result, run.attempt, run.version) == ("succeeded", {"greeted": 1}, 1, "1")
    assert Group.objects.filter(name="Ada").exists()
    assert ProcessedEvent.objects.get().run_id == run.id
    assert [message.topic for message in OutboxMessage.objects.order_by("topic")] == ["event", "run.finished"]
    assert Notification.objects.get().run_id == run.id
    assert Attempt.objects.get().outcome == "succeeded"


@pytest.mark.django_db
def test_an_exception_rolls_everything_back_and_retries_later(claim_for: Callable[..., Claim]) -> None:
    def body(run: AgentRun) -> None:
        Group.objects.create(name="Ada")
        run.emit("visitor.greeted")
        raise ValueError("no\x00pe")

    claim = claim_for(body)
    execute(claim)

    run = Run.objects.get()
    assert (run.status, run.attempt) == ("queued", 1)
    assert run.due_at is not None
    assert run.ready_at is None
    assert not Group.objects.filter(name="Ada").exists()
    assert not OutboxMessage.objects.exists()
    attempt = Attempt.objects.get()
    assert (attempt.outcome, attempt.error) == ("failed", "ValueError: no�pe")
    assert "raise ValueError" in attempt.traceback


@pytest.mark.django_db(transaction=True)
def test_steps_are_done_once_and_their_outputs_kept(lab: Lab) -> None:
    calls: list[str] = []

    def add(name: str) -> dict[str, str]:
        calls.append(name)
        return {"group": Group.objects.create(name=name).name}

    def body(run: AgentRun) -> Any:
        first = run.step("first", add, "a")
        second = run.step("second", add, "b")
        run.sleep("1d")
        return [first, second]

    run = lab.run(body)
    assert run.status == "waiting"
    run = lab.later(run)

    assert (run.status, run.result) == ("succeeded", [{"group": "a"}, {"group": "b"}])
    assert calls == ["a", "b"]
    assert [attempt.outcome for attempt in Attempt.objects.filter(run=run)] == ["waiting", "succeeded"]
    assert ProcessedEvent.objects.get().run_id == run.id
    assert [(step.key, step.position, step.status) for step in run.steps.order_by("position")] == [
        ("first", 0, "done"),
        ("second", 1, "done"),
    ]


@pytest.mark.django_db(transaction=True)
def test_a_step_begun_by_a_dead_process_is_parked_not_repeated(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def charge() -> None:
        calls.append(1)
        raise Crash

    lab.declare(lambda run: run.step("charge", charge, effect="at_most_once"))
    record_with(monkeypatch, lambda claim, outcome: None)
    run = lab.run(lambda run: run.step("charge", charge, effect="at_most_once"))
    monkeypatch.undo()
    lab.declare(lambda run: run.step("charge", charge, effect="at_most_once"))
    assert run.status == "running"
    run = lab.crash(run)

    assert (run.status, len(calls)) == ("uncertain", 1)


@pytest.mark.django_db
def test_an_approval_is_used_once() -> None:
    approval = make_asking_run()
    decide(approval.id, decision="approve", by="ada")

    with pytest.raises(IllegalState, match="was already approved by ada") as refusal:
        decide(approval.id, decision="deny", by="bob")

    assert refusal.value.status == "approved"
    assert Approval.objects.get().decided_by == "ada"
    assert AuditEntry.objects.count() == 1
