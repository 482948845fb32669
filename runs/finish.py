"""The success of a run: result, ledger, emitted events, notifications and the freed key, in the body's own transaction."""

from typing import Any

from agents.effects import Effects, Emission
from agents.storable import storable
from runs.claim import Claim
from runs.models import Attempt
from runs.outcome import NoticeRow, Outbound, Outcome, leave
from runs.states import RunStatus

EMITTED = "event"  # the outbox topic of emitted events


def finish(claim: Claim, result: Any, effects: Effects) -> None:
    """Commit-to-be: call it last in the transaction of the body. RunLost: the run is somebody else's, roll back."""
    leave(
        claim.ticket,
        Outcome(
            status=RunStatus.SUCCEEDED,
            attempt=Attempt.Outcome.SUCCEEDED,
            result=storable(result, "its result"),
            outbound=[emitted(claim, emission) for emission in effects.emissions],
            notices=[
                NoticeRow(sender=claim.agent, text=storable(notice.text, "its notification"), urgency=notice.urgency)
                for notice in effects.notices
            ],
        ),
    )


def emitted(claim: Claim, emission: Emission) -> Outbound:
    key = f"{claim.run_id}:{emission.key}"
    payload = {
        "ce_id": key,
        "ce_source": f"agents/{claim.agent}",
        "type": emission.type,
        "subject": emission.subject,
        "data": emission.data,
        "root_id": str(claim.root_id),
        "cause_event_id": str(claim.event_ids[-1]) if claim.event_ids else None,
        "cause_run_id": str(claim.run_id),
        "depth": claim.depth + 1,
    }
    return Outbound(topic=EMITTED, key=key, payload=storable(payload, f"the emitted event {emission.type!r}"))
