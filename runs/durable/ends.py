"""What becomes of a run whose body was interrupted."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from agents.exceptions import describe
from agents.journal.ends import Lost, Parked, Released, TriedAgain, Waiting
from agents.journal.entries import NewWait
from agents.journal.protocol import ApprovalWish, BudgetWish, ChildrenWish, EventWish, TimeWish
from runs.attempt.failure import outcome_of
from runs.budgets.wake import asked_of
from runs.claim import Claim
from runs.durable.store import DatabaseStore
from runs.exceptions import RunLost
from runs.models import Approval, Attempt, Wait
from runs.states import RunStatus
from runs.transitions.entries import ApprovalEntry, WaitEntry
from runs.transitions.outcome import NoticeRow, Outcome


def outcome_of_end(end: BaseException, store: DatabaseStore) -> Outcome:
    """RunLost: another process owns the run."""
    claim = store.claim
    match end:
        case Waiting():
            return Outcome(
                status=RunStatus.WAITING,
                attempt=Attempt.Outcome.WAITING,
                reason=end.reason,
                entries=end.entries,
                wait=_entry(end.wait),
                notices=_asked(end.wait, claim),
                holds_key=_holds_key(claim),
            )
        case Parked():
            return Outcome(
                status=RunStatus.UNCERTAIN,
                attempt=Attempt.Outcome.UNCERTAIN,
                reason=end.reason,
                entries=end.entries,
                holds_key=_holds_key(claim),
                unproved=end.unproved,
            )
        case TriedAgain():
            return Outcome(
                status=RunStatus.QUEUED,
                attempt=Attempt.Outcome.FAILED,
                reason=end.reason,
                error=describe(end.error),
                due_in=claim.policy.backoff_after(end.failed.attempts)
                if end.after is None
                else timedelta(seconds=end.after),
                give_back=True,
                entries=end.entries,
            )
        case Released():
            return Outcome(status=RunStatus.QUEUED, attempt=Attempt.Outcome.RELEASED, reason=end.reason, give_back=True)
        case RunLost():
            raise end
        case Lost(error=RunLost() as error):
            raise error
        case Lost():
            return outcome_of(end.error, store.progressed_claim)
    return outcome_of(end, store.progressed_claim)


def _entry(wait: NewWait) -> WaitEntry:
    place: dict[str, Any] = {"key": wait.key, "position": wait.position, "is_keyed": wait.is_keyed}
    match wait.wish:
        case TimeWish() as wish:
            return WaitEntry(kind=Wait.Kind.TIME, duration=wish.duration, until=wish.until, **place)
        case EventWish() as wish:
            return WaitEntry(
                kind=Wait.Kind.EVENT,
                duration=wish.timeout,
                event_type=wish.type,
                event_source=wish.source,
                match=wish.match,
                **place,
            )
        case ApprovalWish() as wish:
            approval = ApprovalEntry(
                id=UUID(int=uuid7().int),
                question=wish.question,
                detail=wish.detail,
                arguments=wish.arguments,
                on_expiry=Approval.OnExpiry(wish.on_expiry),
            )
            return WaitEntry(kind=Wait.Kind.APPROVAL, duration=wish.expires, approval=approval, **place)
        case ChildrenWish() as wish:
            return WaitEntry(kind=Wait.Kind.CHILDREN, duration=wish.timeout, children=wish.children, **place)
        case BudgetWish() as wish:
            return WaitEntry(kind=Wait.Kind.BUDGET, until=wish.until, asked=asked_of(wish), **place)


def _asked(wait: NewWait, claim: Claim) -> Sequence[NoticeRow]:
    """A person is to hear of what is asked, once."""
    if not isinstance(wait.wish, ApprovalWish) or not wait.is_new:
        return ()
    return [NoticeRow(sender=claim.agent, text=f"Asks for approval: {wait.wish.question}", urgency="normal")]


def _holds_key(claim: Claim) -> bool:
    return claim.policy.holds_key_while_waiting(claim.key_limit)
