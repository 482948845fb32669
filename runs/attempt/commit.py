"""Commit the end of a claim: the run's outcome, the claim of the next run, COMMIT and the session's next name in one round trip.

The server executes them in turn and skips the rest where one fails: if the fence does not hold, nothing is claimed and nothing
committed. The end locks the run's row until the commit, so both runs may share the transaction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.db import DatabaseError, DataError, connection

from runs.attempt.clean_session import is_changed
from runs.claim import CLAIM_ALONG, NAME_KEPT, Along, Claim, Nothing, found_of
from runs.db.sql import Query
from runs.db.trip import Answer, one_trip, reach
from runs.exceptions import CannotClaim, RunLost
from runs.transitions.leave import FENCED, ends_of, tell
from runs.transitions.outcome import Outcome

ClaimAnother = Callable[[], Along | None]


def nothing() -> None:
    return None


@dataclass
class Next:
    """The claim of the next run. `claimed` counts only if the commit happened, which may be known later than its answer: the
    connection may be lost in between."""

    claim_another: ClaimAnother = nothing
    claimed: Claim | None = None


def commit(
    claim: Claim, outcome: Outcome, next: Next, *, before: Sequence[Query] = (), point: str = "before_commit"
) -> None:
    """End the claim in the caller's transaction and commit it, unless that is part of another one. It must be the last call in there;
    the statements of `before` go along. RunLost: another process owns the run, or it is to be cancelled instead of going on.
    CannotClaim: the claim of the next run failed. Both: roll back."""
    commits = not connection.savepoint_ids
    along = next.claim_another()
    asked: Answer | None = None
    named: Answer | None = None
    found: Claim | Nothing | None = None
    ended: list[Answer] = []
    try:
        with one_trip() as trip:
            ended += [trip.add(*query) for query in (*before, *ends_of(claim.ticket, outcome))]
            asked = trip.add(CLAIM_ALONG, along.parameters, found_of) if along else None
            reach(point, trip)
            if commits:
                trip.add("COMMIT")
                # A session that the body has changed is cleaned first, its name too.
                named = trip.add(NAME_KEPT) if along and not is_changed() else None
    except DatabaseError as error:
        if getattr(error.__cause__, "sqlstate", None) == FENCED:
            raise RunLost(f"run {claim.run_id} left epoch {claim.epoch}") from error
        if isinstance(error, DataError) and ended[-1].has_come and asked and not asked.has_come:
            raise CannotClaim from error
        raise
    finally:
        # Without an answer to COMMIT as well.
        if along and asked and asked.has_come:
            [found] = asked.rows()
            if isinstance(found, Claim):
                next.claimed = along.made(found, is_named=bool(named and named.has_come and named.rows()))
    [(is_news,)] = ended[-1].rows()
    tell(claim.ticket, outcome, claim.whose, is_news, claim.epoch)
    if along and found:
        along.committed(found)
