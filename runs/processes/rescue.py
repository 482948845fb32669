"""Recover runs from processes that died, froze or missed their lease: end the session of the run, then fence the run and hand it on.
So a frozen process holds no locks and commits nothing."""

import time
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, OperationalError

from runs.db.errors import do_each, is_gone
from runs.db.patience import is_locked, session_waits
from runs.db.sql import execute, fetch, fetch_column
from runs.failpoints import failpoint
from runs.models import UNPARSED, Attempt, Run, Step
from runs.models.policy import Policy
from runs.processes.lease import EXPIRES, IS_GONE, patience
from runs.processes.timeline import FAILED_OVER
from runs.states import RunStatus
from runs.transitions.leave import take_away
from runs.transitions.outcome import Outcome, released, ticket_of, unproved

log = structlog.get_logger(__name__)

LOCK_PATIENCE = timedelta(milliseconds=200)
# So many passes that hang, or reconnections, each within a lease of the one before: the server is slow, or the dispatcher busy, or only its
# own sessions end.
CHRONIC = 3

# Of processes whose session has vanished, those of workers: what a sources process reads, and the requests that a caller makes, are its
# own until its lease ends.
CLOSE_UNSEEN = f"""
UPDATE runs_worker SET stopped_at = clock_timestamp(), stopped_reason = 'unseen'
WHERE id IN (
  SELECT id FROM runs_worker
  WHERE stopped_at IS NULL
    AND ({EXPIRES} < clock_timestamp() OR kind = 'worker' AND {IS_GONE})
    AND clock_timestamp() > pg_postmaster_start_time() + %(lease)s::interval
  FOR UPDATE SKIP LOCKED)
RETURNING id, kind, host, pid
"""  # noqa: S608  (our own parts)
# After the database's clock was set back: a live process renews by the new time; the row of a dead one would never expire.
COME_BACK = """
UPDATE runs_worker SET seen_at = statement_timestamp(), expires_at = statement_timestamp() + (expires_at - seen_at)
WHERE id IN (
  SELECT id FROM runs_worker WHERE stopped_at IS NULL AND seen_at > clock_timestamp() + interval '1 second'
  FOR UPDATE SKIP LOCKED)
"""
# Sessions of this and of earlier epochs: the process that fenced a run may have died before it ended the session.
TERMINATE = """
SELECT pg_terminate_backend(pid, %(wait)s::bigint) FROM pg_stat_activity
WHERE datname = current_database() AND application_name ~ ('^wakeful:' || %(run)s::text || ':[0-9]+$')
  AND split_part(application_name, ':', 3)::int <= %(epoch)s::int
"""


class Rescuer:
    """Looks for processes unseen for a lease. Not within one lease of a time at which they could not renew either: before its own
    (re)connection, while the database refused to write (a read-only phase), and in a pass that hung or began late (a frozen server, or
    host). Where that recurs, processes can renew in between: no dead one stays open for that."""

    def __init__(self) -> None:
        self.away_until = self.pass_began = time.monotonic()
        self.hung_until = float("-inf")
        self.hangs = 0  # and reconnections, each within a lease of the one before
        self.is_refused = False  # its last write

    def reconnected(self) -> None:
        """Call when this process has written in its new session."""
        self.pass_began = time.monotonic()
        self._was_away()

    def begin_pass(self) -> None:
        """The dispatcher has waited for work, and looks for it now, or should have: it may have been frozen with the server."""
        self.pass_began = min(self.pass_began, time.monotonic())

    def end_pass(self, wait: float) -> None:
        """Call before the dispatcher waits for so many seconds at most."""
        self.note_pass()
        self.pass_began = time.monotonic() + wait

    def note_pass(self) -> None:
        """A process that owns something is looked for well before its lease ends, so a pass hangs for most of the rest of the lease where
        the server does."""
        if time.monotonic() - self.pass_began > settings.WAKEFUL_LEASE.total_seconds() / 2:
            self._was_away()

    def _was_away(self) -> None:
        if self.hung_until < self.pass_began:  # this pass was not noted before
            is_again = self.pass_began - self.hung_until < settings.WAKEFUL_LEASE.total_seconds()
            self.hangs = self.hangs + 1 if is_again else 1
        self.hung_until = time.monotonic()
        if self.hangs <= CHRONIC:
            self.away_until = self.hung_until

    def rescue(self) -> int:
        """Close the rows of unseen processes, and hand on the runs of closed ones; return how many runs."""
        self._write()
        self.note_pass()
        if time.monotonic() - self.away_until > settings.WAKEFUL_LEASE.total_seconds():
            close_unseen()
        failpoint("after_close")
        running = Run.objects.running().select_related("worker").defer(*UNPARSED)
        lost_runs = list(running.filter(worker__stopped_at__isnull=False).order_by("seq"))
        if not lost_runs:
            return 0
        with session_waits(LOCK_PATIENCE):  # each run that is locked elsewhere costs this wait
            return do_each(self._hand_on, lost_runs)

    def _hand_on(self, run: Run) -> bool:
        """What many runs, or their sessions, make this process wait is no hang: each run is measured by itself."""
        self.note_pass()
        self.pass_began = time.monotonic()
        return lost_unless_locked(run, "its worker was lost")

    def _write(self) -> None:
        """Each rescue writes, so that it knows of a refusal before it judges the rows of those that were refused as well."""
        try:
            execute(COME_BACK)
        except DatabaseError:
            self.is_refused = True
            raise
        if self.is_refused:
            self.is_refused, self.away_until = False, time.monotonic()


def close_unseen() -> None:
    for worker, kind, host, pid in fetch(CLOSE_UNSEEN, patience()):
        log.warning("worker.unseen", worker=str(worker), kind=kind, host=host, pid=pid)


def lost_unless_locked(run: Run, reason: str) -> bool:
    """Like `lost`, but skip a run that is locked elsewhere, or whose key is."""
    try:
        return lost(run, reason)
    except OperationalError as error:
        if not is_locked(error):
            raise
        log.warning("rescue.locked", run=str(run.id), key=run.key)
        return False


def lost(run: Run, reason: str) -> bool:
    """Take a run from its process and hand it on. False: the run has changed meanwhile, or its session is still alive."""
    if not terminate_session(run.id, run.epoch):
        return False
    failpoint("after_terminate")
    outcome = lost_outcome(run, reason)
    try:
        taken = take_away(ticket_of(run), outcome, expected=RunStatus.RUNNING)
    except Exception as error:
        if is_gone(error):  # its commit may have happened, and then no later rescue finds the run
            log.warning(
                "run.lost_unconfirmed",
                run=str(run.id),
                agent=run.agent,
                epoch=run.epoch,
                status=outcome.status,
                reason=reason,
            )
        raise
    if taken:
        log.warning("run.lost", run=str(run.id), agent=run.agent, epoch=run.epoch, attempt=run.attempt, reason=reason)
    return taken


def lost_outcome(run: Run, reason: str) -> Outcome:
    """Attempts count at the claim, so a run that kills its process fails in the end."""
    status, why = RunStatus.QUEUED, reason
    if run.cancel_requested_at:
        status, why = RunStatus.CANCELLED, "cancelled"
    elif run.worker and run.worker.stopped_reason == FAILED_OVER:
        return replace(released("the database failed over"), error="released: the database failed over")
    elif not policy_of(run).attempts_left(run.attempt):
        outcome = Outcome(status=RunStatus.FAILED, reason=f"attempts used up ({run.attempt})")
        return replace(left_to_a_person(run, outcome), attempt=Attempt.Outcome.LOST, error=reason)
    return Outcome(status=status, attempt=Attempt.Outcome.LOST, reason=why, error=reason)


def left_to_a_person(run: Run, outcome: Outcome) -> Outcome:
    """A run with a step whose outcome is unknown does not fail: a person decides. Its session has ended, so it begins no other."""
    step = run.steps.filter(status=Step.Status.STARTED).order_by("position").first()
    if step is None:
        return outcome
    return replace(
        outcome,
        status=RunStatus.UNCERTAIN,
        reason=unproved(step.key, outcome.reason),
        holds_key=policy_of(run).holds_key_while_waiting(run.key_limit),
        unproved=step.key,
    )


def policy_of(run: Run) -> Policy:
    """The policy of a run; the defaults if this version cannot parse it, so that it does not stop the rescue of other runs."""
    try:
        return Policy.of_run(run.policy)
    except DatabaseError:
        raise
    except Exception:
        log.warning("run.policy_unreadable", run=str(run.id), exc_info=True)
        return Policy.load({})


def terminate_session(run_id: UUID, epoch: int) -> bool:
    """End the session that executes this claim; return whether it is gone within a quarter of a lease."""
    wait = settings.WAKEFUL_LEASE // 4 // timedelta(milliseconds=1)
    return all(fetch_column(TERMINATE, {"wait": wait, "run": str(run_id), "epoch": epoch}))
