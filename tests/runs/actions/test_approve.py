"""A decision counts once, while there is still something to decide, and for the arguments that were shown."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import pytest
from django.db import connection, transaction
from django.utils import timezone

from agents.journal.canonical import digest_of
from runs.actions.approve import decide
from runs.actions.cancel import cancel
from runs.exceptions import IllegalState
from runs.models import Approval, AuditEntry, Run, Wait
from runs.states import RunStatus
from runs.waits import end_due
from tests.support.journals import ARGUMENTS, make_approval, make_asking_run
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db


def elsewhere(*actions: Callable[[], Any]) -> list[Any]:
    """What these return or refuse with, each done at once with the others on a connection of its own."""
    at_once = threading.Barrier(len(actions))
    results: list[Any] = [None] * len(actions)

    def act(place: int) -> None:
        try:
            connection.ensure_connection()
            at_once.wait(60)
            results[place] = actions[place]()
        except IllegalState as refusal:
            results[place] = refusal
        finally:
            connection.close()

    threads = [threading.Thread(target=act, args=[place]) for place in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return results


@pytest.mark.parametrize(
    ("decision", "status", "arguments"),
    [("approve", "approved", ARGUMENTS), ("edit", "edited", {"cents": 1}), ("deny", "denied", None)],
)
def test_a_decision_is_written_down_and_lets_the_run_go_on(
    decision: Literal["approve", "edit", "deny"], status: str, arguments: Any
) -> None:
    opened = make_asking_run()

    decide(opened.id, decision=decision, by="ada", reason="so", arguments=arguments if decision == "edit" else None)

    approval = Approval.objects.get(pk=opened.id)
    assert (approval.status, approval.decided_by, approval.reason) == (status, "ada", "so")
    assert approval.decided_arguments == arguments
    assert approval.decided_digest == ("" if arguments is None else digest_of("Refund?", arguments))
    assert approval.wait.status == "done"
    assert approval.wait.run.status == "queued" and approval.wait.run.ready_at is not None


def test_every_decision_is_in_the_audit_log_without_what_it_was_about() -> None:
    approval = make_asking_run()

    decide(approval.id, decision="deny", by="ada", reason="Bob asked me to")

    entry = AuditEntry.objects.get()
    assert (entry.by, entry.action, entry.kind, entry.object_id) == ("ada", "deny", "approval", str(approval.id))
    assert entry.detail == {"run": str(approval.wait.run_id), "digest": approval.digest}


@pytest.mark.parametrize("key_limit", [1, 2])
def test_an_approved_run_without_a_slot_waits_for_one_of_its_key(key_limit: int) -> None:
    approval = make_asking_run(key="t:k", key_limit=key_limit)

    decide(approval.id, decision="approve", by="ada")

    run = Run.objects.get(pk=approval.wait.run_id)
    assert (run.status, run.ready_at, run.due_at is not None) == ("queued", None, True)


def test_a_run_that_kept_its_place_is_ready_at_once() -> None:
    approval = make_asking_run(key="t:k", slot=1)

    decide(approval.id, decision="approve", by="ada")

    run = Run.objects.get(pk=approval.wait.run_id)
    assert (run.slot, run.ready_at is not None, run.due_at) == (1, True, None)


def test_a_decision_meant_for_something_else_is_refused() -> None:
    approval = make_asking_run()

    with pytest.raises(IllegalState, match="has another question"):
        decide(approval.id, decision="approve", by="ada", digest=digest_of("Refund?", {"invoice": 7, "cents": 1}))
    decide(approval.id, decision="approve", by="ada", digest=digest_of("Refund?", {"cents": 1200, "invoice": 7}))

    assert Approval.objects.get().status == "approved"


def test_an_expired_approval_cannot_be_decided_even_before_its_run_knows() -> None:
    approval = make_asking_run()
    Wait.objects.update(due_at=timezone.now() - timedelta(seconds=1))

    with pytest.raises(IllegalState, match="has expired") as refusal:
        decide(approval.id, decision="approve", by="ada")

    assert refusal.value.status == "expired"
    assert end_due(10).runs == 1
    assert Approval.objects.get().status == "expired"


def test_the_approval_of_a_cancelled_run_is_closed() -> None:
    approval = make_asking_run()
    cancel(approval.wait.run_id, by="bob")

    with pytest.raises(IllegalState, match="stopped before a decision") as refusal:
        decide(approval.id, decision="approve", by="ada")

    assert refusal.value.status == "closed"


@pytest.mark.parametrize(
    "decision",
    [
        {"decision": "maybe"},
        {"decision": "edit"},
        {"decision": "approve", "arguments": {"cents": 1}},
        {"decision": "deny", "arguments": {"cents": 1}},
    ],
)
def test_a_decision_that_makes_no_sense_is_no_decision(decision: Any) -> None:
    approval = make_asking_run()

    with pytest.raises(ValueError, match="edit|decision"):
        decide(approval.id, by="ada", **decision)

    assert Approval.objects.get().status == "pending"


def test_arguments_that_were_not_part_of_the_question_cannot_be_edited() -> None:
    approval = make_approval(make_run(status=RunStatus.WAITING), status="open")

    with pytest.raises(ValueError, match="no arguments to edit"):
        decide(approval.id, decision="edit", by="ada", arguments={"cents": 1})


# --- Races ---


@pytest.mark.django_db(transaction=True)
def test_one_of_two_simultaneous_decisions_wins_and_the_refusal_names_its_author() -> None:
    opened = make_asking_run()

    results = elsewhere(
        lambda: decide(opened.id, decision="approve", by="ada"), lambda: decide(opened.id, decision="deny", by="bob")
    )

    [refusal] = [one for one in results if isinstance(one, IllegalState)]
    approval = Approval.objects.get()
    assert f"already {approval.status} by {approval.decided_by}" in str(refusal)
    assert AuditEntry.objects.get().by == approval.decided_by
    assert Run.objects.get().status == "queued"


def while_locked(approval: Approval, first: Callable[[], Any], second: Callable[[], Any]) -> list[Any]:
    """`first` in a transaction that commits once `second` has come to wait for it."""
    done = threading.Event()
    results: list[Any] = []

    def act() -> None:
        try:
            results.append(second())
        except IllegalState as refusal:
            results.append(refusal)
        finally:
            connection.close()
            done.set()

    thread = threading.Thread(target=act)
    with transaction.atomic():
        first()
        thread.start()
        assert not done.wait(0.3)
    thread.join(60)
    return results


@pytest.mark.django_db(transaction=True)
def test_a_decision_that_comes_after_the_expiry_is_refused() -> None:
    approval = make_asking_run()
    Wait.objects.update(due_at=timezone.now() + timedelta(seconds=0.2))

    def expire() -> None:
        while not end_due(10).runs:
            pass

    [refusal] = while_locked(approval, expire, lambda: decide(approval.id, decision="approve", by="ada"))

    assert isinstance(refusal, IllegalState) and refusal.status == "expired"
    assert (Approval.objects.get().status, Run.objects.get().status) == ("expired", "queued")


@pytest.mark.django_db(transaction=True)
def test_an_expiry_that_comes_during_a_decision_leaves_it_alone() -> None:
    approval = make_asking_run()
    Wait.objects.update(due_at=timezone.now() + timedelta(seconds=1))

    with transaction.atomic():
        decide(approval.id, decision="approve", by="ada")
        Wait.objects.filter(status="done").update(due_at=timezone.now() - timedelta(seconds=1))
        [ended] = elsewhere(lambda: end_due(10).runs)

    assert ended == 0
    assert (Approval.objects.get().status, Wait.objects.get().status) == ("approved", "done")


@pytest.mark.django_db(transaction=True)
def test_a_decision_that_comes_after_a_cancel_is_refused() -> None:
    approval = make_asking_run()
    run_id = approval.wait.run_id

    [refusal] = while_locked(
        approval, lambda: cancel(run_id, by="bob"), lambda: decide(approval.id, decision="approve", by="ada")
    )

    assert isinstance(refusal, IllegalState) and refusal.status == "closed"
    assert (Approval.objects.get().status, Run.objects.get().status) == ("closed", "cancelled")


@pytest.mark.django_db(transaction=True)
def test_a_cancel_that_comes_after_a_decision_stops_the_run_it_woke() -> None:
    approval = make_asking_run()
    run_id = approval.wait.run_id

    [cancelled] = while_locked(
        approval, lambda: decide(approval.id, decision="approve", by="ada"), lambda: cancel(run_id, by="bob")
    )

    assert cancelled.status == "cancelled"
    assert (Approval.objects.get().status, Run.objects.get().status) == ("approved", "cancelled")
