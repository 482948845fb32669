"""Stop live runs: cancel a run, or every run of a key that a newer one replaces."""

from collections.abc import Collection
from uuid import UUID

from django.db.models.functions import Now

from runs.db.sql import fetch
from runs.models import UNPARSED, Run
from runs.states import FINISHED, LIVE_SQL, RunStatus
from runs.transitions.leave import take_away, take_blocked_away
from runs.transitions.outcome import Outcome, ticket_of

NEXT_EVENT = "the next event"
MOST_AT_ONCE = 10_000  # most runs that one transaction replaces, because others wait for its locks
LOCK_RUNS = """
SELECT wanted.key, live.runs, locked.runs FROM unnest(%(keys)s::text[]) AS wanted(key)
CROSS JOIN LATERAL (
  SELECT count(*) AS runs FROM (
    SELECT FROM runs_run WHERE key = wanted.key AND status IN {live}
    LIMIT %(most)s::int + 1) run) live
CROSS JOIN LATERAL (
  SELECT count(*) AS runs FROM (
    SELECT FROM runs_run WHERE key = wanted.key AND status IN {live}
    AND live.runs <= %(most)s::int FOR UPDATE SKIP LOCKED) run) locked
""".replace("{live}", LIVE_SQL)


def lock_runs(wanted: Collection[str]) -> set[str]:
    """Lock all live runs of keys, without waiting; return the keys for which that worked. Call it under the keys' locks. Of
    a key with more than MOST_AT_ONCE live runs, it cancels some, the rest later."""
    lockable = set()
    for key, live, locked in fetch(LOCK_RUNS, {"keys": sorted(wanted), "most": MOST_AT_ONCE}) if wanted else ():
        if live > MOST_AT_ONCE:
            take_blocked_away(key, most=MOST_AT_ONCE, reason=f"cancelled by {NEXT_EVENT}")
        elif live == locked:
            lockable.add(key)
    return lockable


def replace_others(key: str, run_id: UUID) -> None:
    """Cancel every live run of a key except this one, in the caller's transaction, under the locks of the key and its runs.
    Blocked runs come first, so that none of them gets the place of another one that stops."""
    by = f"{NEXT_EVENT}, for run {run_id}"
    take_blocked_away(key, but=run_id, reason=f"cancelled by {by}")
    for run in Run.objects.live().filter(key=key).exclude(pk=run_id).defer(*UNPARSED).order_by("seq"):
        stop(run, by)


def stop(run: Run, by: str) -> bool:
    """Cancel a run, in the caller's transaction; ask a running one to stop. False: it has changed since it was read."""
    if run.status in FINISHED:
        return False
    if run.status == RunStatus.RUNNING:
        waiting = Run.objects.filter(pk=run.pk, epoch=run.epoch, status=RunStatus.RUNNING)
        return waiting.update(cancel_requested_at=Now()) == 1
    outcome = Outcome(status=RunStatus.CANCELLED, reason=f"cancelled by {by}")
    return take_away(ticket_of(run), outcome, expected=RunStatus(run.status))
