"""Deciding what a run asks. A decision counts once, while the approval's wait is open and its time is not over, and only
for the arguments that were shown to whoever decided."""

from typing import Any, Literal, get_args
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from agents.guards.atomic import not_in_atomic_body
from agents.journal.canonical import digest_of
from runs import audit
from runs.exceptions import IllegalState
from runs.failpoints import failpoint
from runs.models import Approval, Run, Wait
from runs.waits import end_these

Choice = Literal["approve", "edit", "deny"]
EXPIRED = "expired"


@not_in_atomic_body
def decide(
    approval_id: UUID, *, decision: Choice, by: str, arguments: Any = None, reason: str = "", digest: str = ""
) -> Approval:
    """Decide it, and let its run go on. `arguments` come with "edit" alone; a `digest` says what the decision was meant for.

    Raises Approval.DoesNotExist, ValueError where the decision makes no sense, and IllegalState where somebody has
    decided, its time is over, its run was stopped, or it asks for something else than `digest` says.
    """
    _check(decision, arguments)
    with transaction.atomic():
        approval = _lock(approval_id)
        if approval.status != "pending":
            raise IllegalState(_why_not(approval), approval.status)
        if not Wait.objects.filter(Q(due_at=None) | Q(due_at__gt=Now()), pk=approval.wait_id).exists():
            # The timer that says so to the run is about to come.
            raise IllegalState(f"approval {approval_id} has expired", EXPIRED)
        if digest and digest != approval.digest:
            raise IllegalState(
                f"approval {approval_id} has another question than the one shown: its digest is {approval.digest}",
                approval.status,
            )
        if decision == "edit" and approval.arguments is None:
            raise ValueError("this approval has no arguments to edit; approve or deny it")
        _write(approval, decision, by, arguments, reason)
        if not end_these([approval.wait_id]):
            raise IllegalState(f"run {approval.wait.run_id} does not wait for approval {approval_id}", approval.status)
        audit.record(by, decision, approval, run=str(approval.wait.run_id), digest=approval.digest)
        failpoint("before_decide_commit")
    failpoint("after_decide_commit")
    return _read(approval_id)


def is_over(approval: Approval) -> bool:
    """Is its time over, whether or not its run has been told yet?"""
    return Wait.objects.filter(pk=approval.wait_id, status=Wait.Status.OPEN, due_at__lte=Now()).exists()


def _check(decision: str, arguments: Any) -> None:
    if decision not in get_args(Choice):
        raise ValueError(f"a decision is one of {', '.join(get_args(Choice))}, not {decision!r}")
    if decision == "edit" and arguments is None:
        raise ValueError('decision "edit" requires arguments')
    if decision != "edit" and arguments is not None:
        raise ValueError('arguments are only allowed with decision "edit"')


def _lock(approval_id: UUID) -> Approval:
    """The approval as it is once its run is locked: whoever ends a wait locks the run first."""
    run_id = Approval.objects.values_list("wait__run_id", flat=True).get(pk=approval_id)
    Run.objects.select_for_update().only("id").get(pk=run_id)
    return _read(approval_id)


def _read(approval_id: UUID) -> Approval:
    return Approval.objects.select_related("wait__run").get(pk=approval_id)


def _write(approval: Approval, decision: Choice, by: str, arguments: Any, reason: str) -> None:
    granted = {
        "approve": (approval.arguments, approval.digest),
        "edit": (arguments, digest_of(approval.question, arguments)),
        "deny": (None, ""),
    }
    decided_arguments, decided_digest = granted[decision]
    written = Approval.objects.filter(pk=approval.pk, decision="").update(
        decision=decision,
        decided_by=by,
        decided_at=Now(),
        decided_arguments=decided_arguments,
        decided_digest=decided_digest,
        reason=reason,
    )
    if not written:
        decided = _read(approval.pk)
        raise IllegalState(_why_not(decided), decided.status)


def _why_not(approval: Approval) -> str:
    if approval.decision:
        return f"approval {approval.pk} was {approval.status} by {approval.decided_by} already"
    if approval.status == EXPIRED:
        return f"approval {approval.pk} has expired"
    return f"approval {approval.pk} is closed: run {approval.wait.run_id} stopped before a decision"
