"""The outcome of a body's exception: another attempt later, or a failed run."""

import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from agents.exceptions import Permanent, Retry, as_text, describe, is_permanent
from agents.guards.sql_writes import writing_refused
from runs.claim import Claim
from runs.exceptions import DeadlineExceeded
from runs.models import Attempt
from runs.states import RunStatus
from runs.transitions.outcome import Outcome

AnyError = TypeVar("AnyError", bound=BaseException)
READ_ONLY = "25006"  # PostgreSQL: read_only_sql_transaction


def as_permanent(error: AnyError, refused: Callable[[str], Permanent] = writing_refused) -> AnyError | Permanent:
    """Turn PostgreSQL's refusal of a write outside of a transactional step into Permanent with the fix."""
    if getattr(error.__cause__, "sqlstate", None) != READ_ONLY:
        return error
    permanent = refused(str(error.__cause__))
    permanent.__cause__ = error
    return permanent


def outcome_of(error: BaseException, claim: Claim) -> Outcome:
    """Permanent errors and a missed deadline fail the run; other errors are retried while attempts are left."""
    if isinstance(error, DeadlineExceeded):
        return _failed(error, "deadline", Attempt.Outcome.DEADLINE)
    error = as_permanent(error)
    if is_permanent(error):
        return _failed(error, "permanent error", Attempt.Outcome.FAILED)
    if not claim.policy.attempts_left(claim.attempt):
        return _failed(error, f"attempts used up ({claim.attempt})", Attempt.Outcome.FAILED)
    delay = _delay(error, claim)
    return Outcome(
        status=RunStatus.QUEUED,
        attempt=Attempt.Outcome.FAILED,
        reason=f"retry after attempt {claim.attempt}",
        error=describe(error),
        traceback=trace(error),
        due_in=delay,
    )


def _delay(error: BaseException, claim: Claim) -> timedelta:
    if isinstance(error, Retry) and error.after is not None:
        return error.after
    return claim.policy.backoff_after(claim.attempt)


def _failed(error: BaseException, reason: str, outcome: Attempt.Outcome) -> Outcome:
    return Outcome(
        status=RunStatus.FAILED,
        attempt=outcome,
        reason=reason,
        error=describe(error),
        traceback=trace(error),
        exception=error,
    )


def trace(error: BaseException) -> str:
    return as_text("".join(traceback.format_exception(error)))[-100_000:]
