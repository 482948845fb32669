"""The success of a run: result, ledger, emitted events, notifications and the freed key, in the body's own transaction."""

from collections.abc import Sequence
from typing import Any

from agents.effects import Effects
from agents.guards.storable import storable
from runs.attempt.effects import rows_of
from runs.claim import Claim
from runs.models import Attempt
from runs.states import RunStatus
from runs.transitions.entries import StepEntry
from runs.transitions.leave import leave
from runs.transitions.outcome import Outcome


def finish(claim: Claim, result: Any, effects: Effects, entries: Sequence[StepEntry] = ()) -> None:
    """Commit-to-be: call it last in the transaction of the body. RunLost: the run is somebody else's, roll back."""
    rows = rows_of(claim, effects)
    leave(
        claim.ticket,
        Outcome(
            status=RunStatus.SUCCEEDED,
            attempt=Attempt.Outcome.SUCCEEDED,
            result=storable(result, "its result"),
            outbound=rows.outbound,
            notices=rows.notices,
            entries=entries,
        ),
    )
