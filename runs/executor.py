"""Execute a claimed run. The body of an atomic agent is one transaction: its writes and effects commit together or not at all.
The body of a durable agent is replayed with its journal, in a read-only session."""

import contextlib
import faulthandler
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import structlog
from django.db import DataError, IntegrityError, connection, transaction
from structlog.contextvars import bound_contextvars

from agents import Agent, AgentRun, AsyncAgentRun, Permanent, telemetry
from agents.checklists.of_run import HoldItems
from agents.effects import Effects
from agents.exceptions import describe
from agents.guards.atomic import atomic_body
from agents.guards.storable import storable
from agents.journal.engine import Journal
from agents.journal.entries import StepEntry
from agents.prompt_agents import catalog
from agents.tool_cap import narrowed
from runs import waits
from runs.attempt.checklist_items import holding
from runs.attempt.clean_session import clean, noticing_changes, reset_settings
from runs.attempt.deadline import deadline, run_within
from runs.attempt.effects import rows_of
from runs.attempt.failure import outcome_of
from runs.attempt.gate import ask_gate, keep_state, must_ask
from runs.budgets import wake as budget_waits
from runs.claim import HARD_DEADLINE_AFTER, Claim
from runs.db.away import CONNECTION_ERRORS
from runs.db.readable import readable
from runs.db.session import read_only
from runs.db.sql import fetch
from runs.durable import recorded, sessions
from runs.durable.ends import outcome_of_end
from runs.durable.progress import go_on_if_proved
from runs.durable.store import DatabaseStore
from runs.exceptions import CannotClaim, DeadlineExceeded, GateWasQuiet, RunLost
from runs.failpoints import failpoint
from runs.models import Attempt, Run, Wait, Worker
from runs.ports import ports
from runs.processes.alive import alive
from runs.processes.lease import wakeful_version
from runs.retention.payloads import remove_conversation
from runs.states import FINISHED, RunStatus
from runs.transitions.leave import leave
from runs.transitions.outcome import Outcome, released
from runs.transitions.spans import attempt_of

log = structlog.get_logger(__name__)

T = TypeVar("T")
ClaimAnother = Callable[[], Claim | None]
NAME_SESSION = """
SELECT set_config('application_name', %s::text, false) FROM runs_run
WHERE id = %s::uuid AND epoch = %s::int AND claim = %s::uuid
"""
# Like NAME_SESSION, for a body that begins late: its timeout counts from now.
BEGIN_LATE = """
UPDATE runs_run SET deadline_at = clock_timestamp() + (deadline_at - claimed_at)
FROM (SELECT set_config('application_name', %s::text, false)) named
WHERE id = %s::uuid AND epoch = %s::int AND claim = %s::uuid
RETURNING id
"""
LATE = 1.0  # seconds between the request of a claim and its body
Hook = Callable[[], object]


def execute(claim: Claim, claim_another: ClaimAnother = lambda: None) -> Claim | None:
    """Run the body and record its outcome, unless another process owns the run by then.

    Calls `claim_another` in the transaction of a success, and returns the claim made there.
    """
    with bound_contextvars(**ids_of(claim)), telemetry.within(attempt_of(claim.root_id, claim.run_id, claim.epoch)):
        return _execute(claim, claim_another)


def ids_of(claim: Claim) -> dict[str, str]:
    """What every line has that is logged meanwhile; the id of a trace is that of its first event."""
    event = {"event_id": str(claim.event_ids[0])} if claim.event_ids else {}
    return {"run": str(claim.run_id), "agent": claim.agent, "trace": claim.root_id.hex, **event}


def _execute(claim: Claim, claim_another: ClaimAnother) -> Claim | None:
    started = time.monotonic()
    along: list[Claim] = []
    try:
        outcome = attempt(claim, claim_another, along)
        if outcome is not None:
            record(claim, outcome)
            if outcome.wait is not None:
                failpoint("after_wait_commit")
                look_back(claim, outcome.wait.kind)
            if outcome.unproved:
                with contextlib.suppress(*CONNECTION_ERRORS):
                    go_on_if_proved(claim, outcome.unproved)
    except GateWasQuiet:
        return None
    except RunLost:
        log.warning("run.fenced", run=str(claim.run_id), agent=claim.agent, epoch=claim.epoch)
        return None
    except Exception:
        # The outcome cannot be recorded. When this process exits, the run counts as lost, and the attempt counts.
        log.exception("run.unrecorded", run=str(claim.run_id), agent=claim.agent, epoch=claim.epoch)
        os._exit(1)
    log.info(
        "run.ended",
        run=str(claim.run_id),
        agent=claim.agent,
        attempt=claim.attempt,
        status=outcome.status if outcome else RunStatus.SUCCEEDED,
        error=outcome.error if outcome else "",
        ms=round((time.monotonic() - started) * 1000),
    )
    return along[0] if along and outcome is None else None


def attempt(claim: Claim, claim_another: ClaimAnother, along: list[Claim]) -> Outcome | None:
    """Run the body. None: its success is committed, with the claim in `along` if there is one. Otherwise the outcome, which
    is not recorded yet; nothing else was claimed."""
    failpoint("after_claim")
    try:
        open_session(claim, begins=True)
    except CONNECTION_ERRORS:
        return released("the database was away before the body began")
    if claim.unreadable is not None:
        return unread(claim, claim.unreadable)
    try:
        try:
            agent = agent_of(claim)
            run_body = run_durable if agent.durable else run_atomic
            if must_ask(claim, agent):
                passed = ask_gate(claim, agent)
                if not isinstance(passed, Claim):
                    return passed
                claim = passed
            return run_body(claim, claim_another, along)
        except CannotClaim:
            log.warning("run.claimed_nothing_along", run=str(claim.run_id), exc_info=True)
            return run_body(claim, lambda: None, along)  # its transaction was rolled back
        finally:
            clean()
    except (GateWasQuiet, RunLost):
        raise
    except BaseException as error:
        # Every exception: a task that raises does not end its process, so the attempt would be given back forever.
        return outcome_unless_committed(error, claim)


def outcome_unless_committed(error: BaseException, claim: Claim, *, is_tainted: bool = False) -> Outcome | None:
    """None: the success of the run is committed. Raises an error that says nothing about the body."""
    if isinstance(error, RunLost | CannotClaim):
        raise error
    clean()
    if committed(claim):
        log.warning("run.error_after_commit", run=str(claim.run_id), agent=claim.agent, exc_info=True)
        return None
    return replace(outcome_of(error, claim), is_tainted=is_tainted)


def agent_of(claim: Claim) -> Agent:
    """Permanent: it is a prompt agent, and the version that the run began with is gone."""
    return catalog.begun(claim.agent, claim.begun_version)


def run_of(claim: Claim, journal: Journal | None = None, hold_items: HoldItems = list) -> AgentRun:
    return AgentRun(
        id=claim.run_id,
        agent=claim.agent,
        attempt=claim.attempt,
        trigger=claim.trigger,
        input=claim.input,
        read_events=lambda: ports.read_events(claim.event_ids),
        journal=journal,
        tools=narrowed(claim.policy.tools, None),
        is_tainted=claim.is_tainted,
        from_strangers=lambda: ports.from_strangers([*claim.event_ids, claim.root_id]),
        fired=claim.fired,
        hold_items=hold_items,
    )


def run_atomic(claim: Claim, claim_another: ClaimAnother, along: list[Claim]) -> Outcome | None:
    # The agent is no longer durable, or not yet durable in this worker's version.
    if has_journal(claim):
        return Outcome(
            status=RunStatus.UNCERTAIN,
            attempt=Attempt.Outcome.UNCERTAIN,
            reason="it has a journal, but its agent is atomic in this worker's code, which would repeat every step",
            holds_key=claim.policy.holds_key_while_waiting(claim.key_limit),
        )
    run = run_of(claim, hold_items=holding(claim))
    try:
        hooks = commit_with_body(claim, run, claim_another, along)
    except BaseException as error:
        return outcome_unless_committed(error, claim, is_tainted=run.is_tainted)
    failpoint("after_commit")
    run_hooks(claim, hooks)
    return None


def commit_with_body(claim: Claim, run: AgentRun, claim_another: ClaimAnother, along: list[Claim]) -> list[Hook]:
    """Run the body of an atomic agent and commit it; return its hooks."""
    with transaction.atomic():
        before = len(connection.run_on_commit)
        # In this order: a late SIGALRM in the exit of `atomic_body` would leave its refusal on for the next run.
        with noticing_changes(), atomic_body(claim.agent):
            result = run_within(agent_of(claim), run, claim.policy.timeout)
        failpoint("after_body")
        reset_settings(claim.session_name)
        hooks = hooks_after(before)
        finish(claim, result, run.effects, is_tainted=run.is_tainted)
        # The fence locks the run's row until the commit, so the next claim may share the transaction: half the commits. Not
        # before hooks: the claimed run would wait for them while its time runs.
        if not hooks and (another := claim_another()):
            along.append(another)
        failpoint("before_commit")
    return hooks


def hooks_after(before: int) -> list[Hook]:
    """Remove and return the hooks that the body registered with transaction.on_commit; `run_hooks` runs them."""
    hooks: list[Hook] = [entry[1] for entry in connection.run_on_commit[before:]]
    del connection.run_on_commit[before:]
    return hooks


def run_hooks(claim: Claim, hooks: Sequence[Hook]) -> None:
    """Run the on_commit hooks of the body, within its timeout. The run has already succeeded. The parent does not watch this
    process meanwhile, because it runs no run; so a hook that does not stop ends the process."""
    if not hooks:
        return
    seconds = claim.policy.timeout
    missed = DeadlineExceeded(f"the on_commit hooks of the body took longer than its timeout of {seconds:g} s")
    faulthandler.dump_traceback_later(seconds + HARD_DEADLINE_AFTER, exit=True, file=2)
    ends = time.monotonic() + seconds
    try:
        for hook in hooks:
            try:
                with deadline(max(ends - time.monotonic(), 0.001), lambda _: missed):
                    hook()
            except BaseException:
                log.warning("run.error_after_commit", run=str(claim.run_id), agent=claim.agent, exc_info=True)
    finally:
        faulthandler.cancel_dump_traceback_later()


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


def has_journal(claim: Claim) -> bool:
    """Did any version of the code execute this run durably? Versions before `Run.has_journal` did not record that, so this looks
    for entries of a run that was claimed before, or forked."""
    was_begun = claim.epoch > 1 or claim.policy.durable
    return claim.has_journal or (was_begun and recorded.has_entries(claim.run_id))


def run_durable(claim: Claim, claim_another: ClaimAnother, along: list[Claim]) -> Outcome | None:
    """Replay the body to the end of its journal, and go on. An outcome: the run waits, is parked, failed or will be retried."""
    agent = agent_of(claim)
    with read_only(claim.session_name, *recorded.queries_of(claim.run_id)) as rows:
        store = DatabaseStore(claim, *recorded.of_rows(*rows))
        journal = Journal(store)
        run = run_of(claim, journal, holding(claim, journal))
        try:
            with noticing_changes():
                result = run_within(agent, AsyncAgentRun(run, journal) if agent.is_async else run, claim.policy.timeout)
            journal.require_end()
        except BaseException as error:
            # The body may have caught the interruption.
            return replace(outcome_of_end(journal.end or error, store), is_tainted=store.is_tainted)
    failpoint("after_body")
    reset_settings(claim.session_name)
    try:
        with transaction.atomic():
            keeps = claim.policy.keep_content
            entries = journal.pending if keeps else remove_conversation(claim.run_id, journal.pending)
            finish(claim, result, run.effects, entries, is_tainted=run.is_tainted)
            if another := claim_another():
                along.append(another)
            failpoint("before_commit")
    except BaseException as error:
        return outcome_unless_committed(error, claim, is_tainted=run.is_tainted)
    failpoint("after_commit")
    return None


def look_back(claim: Claim, kind: Wait.Kind) -> None:
    with contextlib.suppress(*CONNECTION_ERRORS):  # without a database, the dispatcher looks back
        if kind in waits.LOOKED_BACK_FOR:
            waits.look_back(claim.run_id)
        elif kind == Wait.Kind.BUDGET:
            budget_waits.look_of_run(claim.run_id)
        elif kind == Wait.Kind.SESSION:
            sessions.look_of_run(claim.run_id)


def open_session(claim: Claim, *, begins: bool = False) -> None:
    """Make sure that the connection works and has the claim's name, by which a rescuer finds and ends it. RunLost: another
    process has taken the run since the claim."""
    driver = connection.connection
    # A terminated session shows as a readable socket.
    lives = driver is not None and not driver.closed and not readable([driver.fileno()], 0)
    # A body may have switched autocommit off: nothing would ever be committed.
    lives = lives and (connection.get_autocommit() or connection.in_atomic_block)
    is_late = begins and time.monotonic() - claim.asked > LATE
    if lives and claim.is_named and not is_late:
        return
    if not lives:
        connection.close()
    if not fetch(BEGIN_LATE if is_late else NAME_SESSION, [claim.session_name, claim.run_id, claim.epoch, claim.id]):
        raise RunLost(f"run {claim.run_id} left epoch {claim.epoch}")


def committed(claim: Claim) -> bool:
    """Did the last transaction commit, before its answer was lost or a hook failed? RunLost: another process owns the run."""
    run = with_patience(lambda: Run.objects.only("status", "epoch", "claim").filter(pk=claim.run_id).first())
    if run is None:
        return True  # its gate was quiet
    if not is_still(run, claim):
        raise RunLost
    return bool(run.status == RunStatus.SUCCEEDED)


def is_still(run: Run, claim: Claim) -> bool:
    """Is this claim the run's last one?"""
    return (run.epoch, run.claim) == (claim.epoch, claim.id)


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
        # Before a lost connection the first try may have committed; then its attempt exists.
        if not Attempt.objects.filter(run_id=claim.run_id, epoch=claim.epoch).exists():
            raise
    except (DataError, TypeError, ValueError) as error:
        if outcome.status in FINISHED:
            raise
        # A part of it can never be stored: fail the run, instead of losing a process at each attempt.
        record(claim, outcome_of(Permanent(f"its outcome cannot be recorded: {describe(error)}"), claim))


PATIENCE = 60.0  # seconds without a database before the process gives up


def with_patience(action: Callable[[], T]) -> T:
    """Call `action`, reconnecting while the database is away. After PATIENCE this process exits, and its run counts as lost."""
    give_up_at = time.monotonic() + PATIENCE
    pause = 0.1
    while True:
        try:
            return action()
        except CONNECTION_ERRORS:
            if time.monotonic() > give_up_at:
                log.exception("worker.gave_up", patience=PATIENCE)
                os._exit(1)
            connection.close()
            time.sleep(pause)
            pause = min(pause * 2, 2.0)


def finish(
    claim: Claim, result: Any, effects: Effects, entries: Sequence[StepEntry] = (), *, is_tainted: bool = False
) -> None:
    """Must be the last call in the body's transaction. RunLost: another process owns the run; roll back."""
    if is_tainted:
        effects.taint()
        if not claim.is_tainted:
            ports.taint_changes(claim.run_id)
    rows = rows_of(claim, effects)
    keep_state(claim)
    leave(
        claim.ticket,
        Outcome(
            status=RunStatus.SUCCEEDED,
            attempt=Attempt.Outcome.SUCCEEDED,
            result=storable(result, "its result"),
            outbound=rows.outbound,
            notices=rows.notices,
            entries=entries,
            is_tainted=is_tainted,
        ),
    )
