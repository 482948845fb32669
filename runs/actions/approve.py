"""Decide an approval. A decision counts once, while the wait is open and before its deadline, and only for the arguments that
the person saw."""

from collections.abc import Mapping
from typing import Any, Literal, get_args
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from agents.exceptions import Permanent
from agents.guards.atomic import not_in_atomic_body
from agents.guards.storable import storable
from agents.journal.canonical import digest_of
from runs.actions.arguments import require_fitting
from runs.exceptions import IllegalState
from runs.failpoints import failpoint
from runs.models import Approval, Run, Wait, audit
from runs.notifications.requests import hurry_outcome
from runs.waits import end_these

Choice = Literal["approve", "edit", "deny"]
EXPIRED = "expired"


@not_in_atomic_body
def decide(
    approval_id: UUID,
    *,
    decision: Choice,
    by: str,
    arguments: Any = None,
    reason: str = "",
    digest: str = "",
    seen: Mapping[str, str] | None = None,
) -> Approval:
    """Decide an approval, and let its run go on. `arguments` belong to "edit" alone; `digest` is that of the question seen. `seen`: more
    for the audit log.

    Raises Approval.DoesNotExist, ValueError for an invalid decision or arguments of another shape, and IllegalState if it is
    decided or expired, its run was stopped, or its digest is another one.
    """
    _check(decision, arguments)
    arguments, reason = _storable(arguments, "arguments"), _storable(reason, "reason")
    with transaction.atomic():
        approval = _lock(approval_id)
        if approval.status != "pending":
            raise IllegalState(_why_not(approval), approval.status)
        if not Wait.objects.filter(Q(due_at=None) | Q(due_at__gt=Now()), pk=approval.wait_id).exists():
            # The deadline is over, but the timer has not ended the wait yet.
            raise IllegalState(f"approval {approval_id} has expired", EXPIRED)
        if digest and digest != approval.digest:
            raise IllegalState(
                f"approval {approval_id} has another question than the one shown: its digest is {approval.digest}",
                approval.status,
            )
        if decision == "edit" and approval.arguments is None:
            raise ValueError("this approval has no arguments to edit; approve or deny it")
        if decision == "edit":
            require_fitting(approval, arguments)
        _write(approval, decision, by, arguments, reason)
        if not end_these([approval.wait_id]):
            raise IllegalState(f"run {approval.wait.run_id} does not wait for approval {approval_id}", approval.status)
        hurry_outcome(approval.pk)
        audit.record(by, decision, approval, run=str(approval.wait.run_id), digest=approval.digest, **(seen or {}))
        failpoint("before_decide_commit")
    failpoint("after_decide_commit")
    return _read(approval_id)


def is_over(approval: Approval) -> bool:
    """Is the approval's deadline over, even if its run has not been woken yet?"""
    return Wait.objects.filter(pk=approval.wait_id, status=Wait.Status.OPEN, due_at__lte=Now()).exists()


def _check(decision: str, arguments: Any) -> None:
    if decision not in get_args(Choice):
        raise ValueError(f"a decision is one of {', '.join(get_args(Choice))}, not {decision!r}")
    if decision == "edit" and arguments is None:
        raise ValueError('decision "edit" requires arguments')
    if decision != "edit" and arguments is not None:
        raise ValueError('arguments are only allowed with decision "edit"')


def _storable(value: Any, name: str) -> Any:
    try:
        return storable(value, f"the value of {name}")
    except Permanent as error:
        raise ValueError(str(error)) from None


def _lock(approval_id: UUID) -> Approval:
    """Read the approval after locking its run: the run is locked before any wait of it ends."""
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
        return f"approval {approval.pk} was already {approval.status} by {approval.decided_by}"
    if approval.status == EXPIRED:
        return f"approval {approval.pk} has expired"
    return f"approval {approval.pk} is closed: run {approval.wait.run_id} stopped before a decision"
