"""The hold of a named session. The run that takes a turn has it, as long as that run is live; one run at a time. Other runs wait
in a row, without a worker.

The hold is a column of the session's row, changed under its lock and only by a claim that owns its run. A run that is killed keeps
it: its next claim goes on with the turn. A run that has ended holds nothing. A run that waits commits its wait first and looks
at the session then; a run that lets it go commits first and looks for waits then. The dispatcher does what a crash left undone.
"""

from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from agents.exceptions import Permanent
from agents.journal.store import Busy
from runs import waits
from runs.claim import Claim
from runs.db.errors import do_each
from runs.db.session import writing
from runs.db.sql import execute, fetch, fetch_column
from runs.exceptions import RunLost
from runs.failpoints import failpoint
from runs.states import LIVE_SQL

CREATE = "INSERT INTO agents_session (name) VALUES (%(name)s::text) ON CONFLICT (name) DO NOTHING"
LOCK = "SELECT run_id FROM agents_session WHERE name = %(name)s::text FOR NO KEY UPDATE"
TRY_LOCK = f"{LOCK} SKIP LOCKED"
HOLDER = "SELECT agent, status FROM runs_run WHERE id = %(holder)s::uuid AND status IN {live}".replace(
    "{live}", LIVE_SQL
)
FENCED = """
WITH fenced AS MATERIALIZED (
  SELECT id FROM runs_run
  WHERE id = %(run)s::uuid AND epoch = %(epoch)s::int AND claim = %(claim)s::uuid AND coalesce(status, '') = 'running'
  FOR NO KEY UPDATE
)
"""
TAKE = f"""{FENCED}
UPDATE agents_session SET run_id = fenced.id, used_at = clock_timestamp() FROM fenced WHERE name = %(name)s::text
"""  # noqa: S608  (our own parts)
LET_GO = f"""{FENCED}
UPDATE agents_session SET run_id = NULL FROM fenced WHERE name = %(name)s::text AND run_id = fenced.id
"""  # noqa: S608
FIRST_WAITING = """
SELECT wait.id, wait.run_id FROM runs_wait wait JOIN runs_run run ON run.id = wait.run_id
WHERE wait.status = 'open' AND wait.kind = 'session' AND wait.asked->>'session' = %(name)s::text AND run.status = 'waiting'
ORDER BY wait.id LIMIT 1
"""
GIVE = "UPDATE agents_session SET run_id = %(next)s::uuid WHERE name = %(name)s::text"
ALL_FREE = f"SELECT DISTINCT wait.asked->>'session' {waits.FOR_FREE_SESSION} LIMIT 100"
FREE_FOR = f"SELECT wait.asked->>'session' {waits.FOR_FREE_SESSION} AND wait.run_id = %(run)s::uuid"


def hold(claim: Claim, session: str) -> Busy | None:
    """Hold the session, in a transaction of its own; or say who does. RunLost: another process owns the run."""
    with writing():
        holder = _locked(session)
        if holder == claim.run_id:
            return None
        if busy := _busy(session, holder) or _behind(session, claim):
            return busy
        if not execute(TAKE, _fence(claim, session)):
            raise RunLost(f"run {claim.run_id} left epoch {claim.epoch}")
        failpoint("before_hold_commit")
    failpoint("after_hold")
    return None


def let_go(claim: Claim, session: str) -> None:
    """The run's turn is over, in the caller's transaction if there is one. Permanent: it does not hold the session."""
    if not connection.in_atomic_block:
        with writing():
            let_go(claim, session)
        return
    if not execute(LET_GO, _fence(claim, session)):
        raise Permanent(f"run {claim.run_id} does not hold session {session!r}")
    transaction.on_commit(partial(_hand_over_after_commit, session), robust=True)


def hand_over(session: str) -> int:
    """Give a free session to the run that has waited longest for it, and let that run go on; how many runs go on: 0 or 1. It
    waits for no lock: who has it takes the session or comes behind others, and the dispatcher looks again."""
    with writing():
        execute(CREATE, {"name": session})
        found = fetch_column(TRY_LOCK, {"name": session})
        if not found or _busy(session, found[0]):
            return 0
        first = fetch(FIRST_WAITING, {"name": session})
        if not first:
            return 0
        [(wait, run)] = first
        ended = waits.end_unless_locked([wait])
        if ended:
            execute(GIVE, {"name": session, "next": run})
        return ended


def hand_over_free() -> int:
    """Hand over every session that is free; how many runs go on."""
    return do_each(hand_over, fetch_column(ALL_FREE))


def look_of_run(run_id: UUID) -> int:
    """Hand over the session that this run has begun to wait for, if it is free by now; how many runs go on."""
    return sum(hand_over(session) for session in fetch_column(FREE_FOR, {"run": run_id}))


def _hand_over_after_commit(session: str) -> None:
    failpoint("before_hand_over")
    hand_over(session)


def _fence(claim: Claim, session: str) -> dict[str, Any]:
    return {"name": session, "run": claim.run_id, "epoch": claim.epoch, "claim": claim.id}


def _locked(session: str) -> UUID | None:
    """Lock the session, which is made where there is none; who holds it."""
    found = fetch_column(LOCK, {"name": session})
    if not found:
        execute(CREATE, {"name": session})
        found = fetch_column(LOCK, {"name": session})  # another run may have made and taken it first
    holder: UUID | None = found[0]
    return holder


def _busy(session: str, holder: UUID | None) -> Busy | None:
    """Who holds the session, read in a statement of its own, which sees what the holder has committed since."""
    known: list[Any] = fetch(HOLDER, {"holder": holder}) if holder else []
    if not known:
        return None
    [(agent, status)] = known
    reason = f"session {session!r} is held by run {holder} of agent {agent!r}, which is {status}"
    return Busy(reason=reason, at_most=settings.WAKEFUL_SESSION_WAIT)


def _behind(session: str, claim: Claim) -> Busy | None:
    """The session is free, but a run that has waited for it comes first."""
    first = fetch(FIRST_WAITING, {"name": session})
    if not first or first[0][1] == claim.run_id:
        return None
    reason = f"session {session!r} goes to run {first[0][1]} next, which has waited for it"
    return Busy(reason=reason, at_most=settings.WAKEFUL_SESSION_WAIT)
