"""Delete a run whose gate was quiet, at its first claim. The place of its key goes to the next run, in the same statement."""

from runs import keys
from runs.db.nudge import nudge_dispatcher, nudge_later
from runs.db.sql import fetch
from runs.transitions.leave import ON_ITS_TIMELINE, PROMOTED
from runs.transitions.outcome import Ticket

# Nothing refers to a run at its first claim: attempts are written when claims end, and the journal by the body.
WITHDRAW = f"""
WITH gone AS (
  DELETE FROM runs_run
  WHERE id = %(id)s::uuid AND epoch = %(epoch)s::int AND claim IS NOT DISTINCT FROM %(claim)s::uuid
    AND status = 'running' AND forked_from_id IS NULL AND cancel_requested_at IS NULL {ON_ITS_TIMELINE}
  RETURNING id, key, queue, priority, turn
), {PROMOTED}
SELECT EXISTS (SELECT FROM promoted) FROM gone
"""  # noqa: S608  (our own parts)


def withdraw(ticket: Ticket) -> bool:
    """Delete the run, as the last statement of the caller's transaction. False: this claim no longer owns it, a person forked it
    or requested its cancellation; nothing was changed."""
    if ticket.key:
        keys.lock(ticket.key)
    gone = fetch(
        WITHDRAW, {"id": ticket.run_id, "epoch": ticket.epoch, "claim": ticket.claim, "timeline": ticket.timeline}
    )
    for (has_promoted,) in gone:
        if has_promoted:
            nudge_dispatcher()
        else:
            nudge_later()  # its queue may have a limit, which held up runs of other workers
    return bool(gone)
