"""The outcome of a run whose body was interrupted."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from agents.exceptions import describe
from agents.journal.ends import Lost, Parked, Released, TriedAgain, Waiting
from runs.attempt.failure import outcome_of
from runs.claim import Claim
from runs.durable.entry import entry_of
from runs.durable.store import DatabaseStore
from runs.exceptions import RunLost
from runs.models import Attempt
from runs.states import RunStatus
from runs.transitions.entries import WaitEntry
from runs.transitions.outcome import NoticeRow, Outcome, released, unproved


def outcome_of_end(end: BaseException, store: DatabaseStore) -> Outcome:
    """The outcome; uncertain instead of failed if it is unknown whether a step happened. RunLost: another process owns the run."""
    outcome = _outcome_of_end(end, store)
    if outcome.status != RunStatus.FAILED or not store.intents:
        return outcome
    step = min(store.intents)
    return replace(
        outcome,
        status=RunStatus.UNCERTAIN,
        reason=unproved(step, outcome.reason),
        holds_key=_holds_key(store.claim),
        unproved=step,
    )


def _outcome_of_end(end: BaseException, store: DatabaseStore) -> Outcome:
    claim = store.claim
    match end:
        case Waiting():
            entry = replace(entry_of(end.wait), taken=store.taken)
            return Outcome(
                status=RunStatus.WAITING,
                attempt=Attempt.Outcome.WAITING,
                reason=end.reason,
                entries=end.entries,
                wait=entry,
                notices=_asked(entry, claim, is_new=end.wait.is_new),
                # Its request is under way, as if it ran: no other run of its key may.
                holds_key=entry.call is not None or _holds_key(claim),
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
            return released(end.reason)
        case RunLost():
            raise end
        case Lost(error=RunLost() as error):
            raise error
        case Lost():
            return outcome_of(end.error, store.progressed_claim)
    return outcome_of(end, store.progressed_claim)


def _asked(wait: WaitEntry, claim: Claim, *, is_new: bool) -> Sequence[NoticeRow]:
    """The notification of an approval, sent once."""
    if wait.approval is None or not is_new:
        return ()
    question, link = wait.approval.question, f"approval:{wait.approval.id}"
    return [
        NoticeRow(sender=claim.agent, text=f"Asks for approval: {question}", urgency="normal", link=link, topic=link)
    ]


def _holds_key(claim: Claim) -> bool:
    return claim.policy.holds_key_while_waiting(claim.key_limit)
