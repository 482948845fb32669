"""Execute a claimed run: open its session, read it, ask its gate, run its body, record its outcome, follow it up."""

import contextlib
import os
import time
from typing import NoReturn

import structlog
from django.db import DataError, IntegrityError, transaction
from structlog.contextvars import bound_contextvars

from agents import Permanent, telemetry
from agents.exceptions import describe
from agents.kernel.log_lines import LogLines
from agents.prompt_agents import catalog
from runs import waits
from runs.attempt.clean_session import clean
from runs.attempt.commit import ClaimAnother, Next
from runs.attempt.failure import outcome_of
from runs.attempt.gate import ask_gate, must_ask
from runs.attempt.ownership import open_session, with_patience
from runs.body import Ended, ended_by, run_body
from runs.budgets import wake as budget_waits
from runs.calls.nudge import nudge_callers
from runs.claim import Claim
from runs.db.outage import CONNECTION_ERRORS
from runs.durable import early, sessions
from runs.durable.progress import go_on_if_proved
from runs.exceptions import GateWasQuiet, RunLost
from runs.failpoints import failpoint
from runs.models import Attempt, Wait, Worker
from runs.processes.alive import alive
from runs.processes.lease import wakeful_version
from runs.states import FINISHED, RunStatus
from runs.transitions.entries import WaitEntry
from runs.transitions.failure_log import log_failure
from runs.transitions.leave import leave
from runs.transitions.outcome import Outcome, released
from runs.transitions.spans import attempt_of

log = structlog.get_logger(__name__)


def execute(claim: Claim, claim_another: ClaimAnother = lambda: None) -> Claim | None:
    """Run the body and record its outcome, unless another process owns the run by then.

    The claim of `claim_another`, if any, is made in the transaction of a success, and returned.
    """
    with bound_contextvars(**ids_of(claim)), telemetry.within(attempt_of(claim.root_id, claim.run_id, claim.epoch)):
        return _execute(claim, claim_another)


def ids_of(claim: Claim) -> dict[str, str]:
    """The ids that each log line of this run gets; the id of a trace is the id of its first event."""
    event = {"event_id": str(claim.event_ids[0])} if claim.event_ids else {}
    return {"run": str(claim.run_id), "agent": claim.agent, "trace": claim.root_id.hex, **event}


def _execute(claim: Claim, claim_another: ClaimAnother) -> Claim | None:
    started = time.monotonic()
    try:
        ended = attempt(claim, claim_another)
        if ended.outcome is not None:
            if not ended.is_recorded:
                record(claim, ended.outcome)
            follow_up(claim, ended.outcome)
    except GateWasQuiet:
        return None
    except RunLost:
        log.warning("run.fenced", run=str(claim.run_id), agent=claim.agent, epoch=claim.epoch)
        return None
    except Exception:
        die_without_a_record(claim)
    log.info(
        "run.ended",
        run=str(claim.run_id),
        agent=claim.agent,
        attempt=claim.attempt,
        status=ended.outcome.status if ended.outcome else RunStatus.SUCCEEDED,
        error=ended.outcome.error if ended.outcome else "",
        ms=round((time.monotonic() - started) * 1000),
    )
    return ended.next


def attempt(claim: Claim, claim_another: ClaimAnother) -> Ended:
    """Run one attempt, without recording its outcome. GateWasQuiet: the run is over. RunLost: another process owns
    it.
    """
    failpoint("after_claim")
    try:
        open_session(claim, begins=True)
    except CONNECTION_ERRORS:
        return Ended(released("the database was away before the body began"))
    if claim.unreadable is not None:
        return Ended(unread(claim, claim.unreadable))
    try:
        # Permanent: it is a prompt agent, and the version that the run began with is gone.
        agent = catalog.begun(claim.agent, claim.begun_version)
        if must_ask(claim, agent):
            answer = ask_gate(claim, agent)
            if isinstance(answer, Outcome):
                return Ended(answer)
            claim = answer
        return run_body(claim, agent, claim_another)
    except (GateWasQuiet, RunLost):
        raise
    except BaseException as error:
        # Every exception: a task that raises does not end its process, so the attempt would be given back forever.
        return ended_by(error, claim, Next(), is_tainted=False, lines=LogLines())
    finally:
        clean()


def unread(claim: Claim, error: Exception) -> Outcome:
    """The outcome of a run whose input or policy this version cannot read: it fails, unless a live worker of another version may
    read it."""
    others = alive().filter(kind=Worker.Kind.WORKER, agents__contains=[claim.agent]).exclude(version=wakeful_version())
    is_left = claim.policy.attempts_left(claim.attempt) and others.exists()
    return Outcome(
        status=RunStatus.QUEUED if is_left else RunStatus.FAILED,
        attempt=Attempt.Outcome.FAILED,
        reason=f"cannot be read by version {wakeful_version()}",
        error=describe(error),
        due_in=claim.policy.backoff_after(claim.attempt) if is_left else None,
    )


def record(claim: Claim, outcome: Outcome) -> None:
    """Record an outcome other than success; retry while the database is away. If this process dies meanwhile, its parent or the
    rescuer declares the run lost."""

    def once() -> None:
        open_session(claim)
        with transaction.atomic():
            leave(claim.ticket, outcome)
            failpoint("before_record_commit")
        failpoint("after_record_commit")

    try:
        with_patience(once)
    except (RunLost, IntegrityError):
        # Before a lost connection the first try may have committed; then its attempt exists, and no hook of its commit was called.
        ended = Attempt.objects.filter(run_id=claim.run_id, epoch=claim.epoch).values_list("outcome", "error").first()
        if ended is None:
            raise
        if outcome.status == RunStatus.FAILED and ended == (
            outcome.attempt,
            outcome.error,
        ):  # not recorded by another process
            log_failure(claim.whose, outcome)
    except (DataError, TypeError, ValueError) as error:
        if outcome.status in FINISHED:
            raise
        # A part of it can never be stored: fail the run, instead of losing a process at each attempt.
        record(claim, outcome_of(Permanent(f"its outcome cannot be recorded: {describe(error)}"), claim))


def follow_up(claim: Claim, outcome: Outcome) -> None:
    """Check for what a recorded outcome may have missed: an event that came before its wait, or proof of its unproved
    step.
    """
    if outcome.wait is not None:
        failpoint("after_wait_commit")
        look_back(claim, outcome.wait)
    if outcome.unproved:
        with contextlib.suppress(*CONNECTION_ERRORS):
            go_on_if_proved(claim, outcome.unproved)


def look_back(claim: Claim, wait: WaitEntry) -> None:
    kind = wait.kind
    with contextlib.suppress(*CONNECTION_ERRORS):  # without a database, the dispatcher looks back
        if kind in waits.LOOKED_BACK_FOR:
            if not early.has_not_come(claim, wait):
                waits.look_back(claim.run_id)
        elif kind == Wait.Kind.BUDGET:
            budget_waits.wake_run(claim.run_id)
        elif kind == Wait.Kind.SESSION:
            sessions.look_of_run(claim.run_id)
        elif kind == Wait.Kind.MODEL:
            nudge_callers()


def die_without_a_record(claim: Claim) -> NoReturn:
    """The outcome cannot be recorded. When this process exits, the run counts as lost, and the attempt counts."""
    log.exception("run.unrecorded", run=str(claim.run_id), agent=claim.agent, epoch=claim.epoch)
    os._exit(1)
