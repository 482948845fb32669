"""A person decides what an uncertain run could not know."""

from collections.abc import Callable
from typing import Any

import pytest

from runs.actions.requeue import requeue
from runs.actions.resolve import resolve
from runs.exceptions import IllegalState
from runs.models import AuditEntry, OutboxMessage, Run, Step
from runs.states import RunStatus
from tests.runs.actions.test_approve import elsewhere
from tests.support.journals import make_step
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db


def make_uncertain(**fields: Any) -> Run:
    """A run parked over a step that may have happened."""
    run = make_run(status=RunStatus.UNCERTAIN, status_reason="'charge' was begun and never proved", **fields)
    make_step(run, "charge", status="started", arguments=[7, 1200])
    return run


def test_resolving_as_happened_records_the_output_of_the_step() -> None:
    run = make_uncertain(attempt=3)

    resolved = resolve(run.id, outcome="happened", result={"id": "ch_1"}, by="ada")

    step = Step.objects.get()
    assert (step.status, step.output, step.ended_at is not None) == ("done", {"id": "ch_1"}, True)
    assert (resolved.status, resolved.attempt, resolved.ready_at is not None) == ("queued", 0, True)
    assert resolved.status_reason == "resolved by ada"


def test_resolving_as_not_happened_lets_the_step_be_called() -> None:
    run = make_uncertain()
    make_step(run, "before")

    resolve(run.id, outcome="did_not_happen", by="ada")

    assert [step.key for step in run.steps.all()] == ["before"]
    assert Run.objects.get().status == "queued"


def test_a_run_may_be_let_fail_and_stays_unproved() -> None:
    run = make_uncertain()

    resolved = resolve(run.id, outcome="fail", by="ada")

    assert (resolved.status, resolved.error) == ("failed", "'charge' was begun and never proved")
    assert OutboxMessage.objects.get(topic="run.finished").payload["status"] == "failed"
    requeue(run.id, by="ada")
    assert Step.objects.get().status == "started"


def test_every_answer_is_in_the_audit_log() -> None:
    run = make_uncertain()

    resolve(run.id, outcome="happened", by="ada", result="secret")

    entry = AuditEntry.objects.get()
    assert (entry.by, entry.action, entry.object_id) == ("ada", "resolve", str(run.id))
    assert entry.detail == {"outcome": "happened", "step": "charge", "position": Step.objects.get().position}


def test_the_first_unproved_step_is_resolved() -> None:
    run = make_uncertain()
    make_step(run, "ship", status="started")

    resolve(run.id, outcome="happened", by="ada")

    assert dict(run.steps.values_list("key", "status")) == {"charge": "done", "ship": "started"}


def test_a_run_whose_journal_does_not_fit_may_try_again_or_fail_but_nothing_happened() -> None:
    run = make_run(status=RunStatus.UNCERTAIN, status_reason="expected 'a', found 'b'")
    make_step(run, "b")

    with pytest.raises(IllegalState, match="does not fit its agent"):
        resolve(run.id, outcome="happened", by="ada")
    resolve(run.id, outcome="did_not_happen", by="ada")

    assert (Run.objects.get().status, Step.objects.get().key) == ("queued", "b")


@pytest.mark.parametrize("status", [RunStatus.QUEUED, RunStatus.WAITING, RunStatus.FAILED, RunStatus.SUCCEEDED])
def test_only_an_uncertain_run_is_resolved(status: RunStatus) -> None:
    with pytest.raises(IllegalState, match=f"is {status}; only an uncertain run"):
        resolve(make_run(status=status).id, outcome="fail", by="ada")


def test_an_answer_that_makes_no_sense_is_none(settings: Any) -> None:
    settings.WAKEFUL_MAX_OUTPUT = 10
    run = make_uncertain()

    for wrong in ({"outcome": "maybe"}, {"outcome": "fail", "result": 1}, {"outcome": "happened", "result": "x" * 9}):
        with pytest.raises(ValueError, match=r"outcome|WAKEFUL_MAX_OUTPUT"):
            resolve(run.id, by="ada", **wrong)

    assert Run.objects.get().status == "uncertain"


def test_a_resolved_run_without_a_slot_waits_for_one_of_its_key() -> None:
    run = make_uncertain(key="t:k")

    resolve(run.id, outcome="did_not_happen", by="ada")

    run.refresh_from_db()
    assert (run.status, run.ready_at, run.due_at is not None) == ("queued", None, True)


def test_a_run_that_fails_makes_room_for_the_next_of_its_key() -> None:
    run = make_uncertain(key="t:k", slot=1)
    blocked = make_run(key="t:k", ready_at=None)

    resolve(run.id, outcome="fail", by="ada")

    blocked.refresh_from_db()
    assert (blocked.slot, blocked.ready_at is not None) == (1, True)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("key", [None, "t:k"])
def test_one_of_two_simultaneous_answers_counts(key: str | None) -> None:
    run = make_uncertain(key=key)
    answers: list[Callable[[], Any]] = [
        lambda: resolve(run.id, outcome="happened", result=1, by="ada"),
        lambda: resolve(run.id, outcome="did_not_happen", by="bob"),
    ]

    results = elsewhere(*answers)

    assert [type(one) for one in results].count(IllegalState) == 1
    assert AuditEntry.objects.count() == 1
    assert Step.objects.count() == (AuditEntry.objects.get().by == "ada")
