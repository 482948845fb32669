"""Run the body of a claimed run, to the commit of its success or to the outcome that ends its attempt.

The body of an atomic agent is one transaction: its writes and effects commit together or not at all. The body of a durable agent is
replayed with its journal, in a read-only session; the commit of its success is a transaction of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog
from django.db import connection, transaction

from agents import Agent, AgentRun, AsyncAgentRun
from agents.checklists.run_checklist import HoldItems
from agents.guards.atomic import atomic_body
from agents.guards.storable import storable
from agents.journal.engine import Journal
from agents.journal.entries import StepEntry
from agents.kernel.connecting import MayUse
from agents.kernel.effects import Effects
from agents.kernel.log_lines import LogChunk, LogLines
from agents.kernel.tool_cap import narrowed
from runs.attempt.checklist_items import holding
from runs.attempt.clean_session import clean, noticing_changes, reset_settings
from runs.attempt.commit import ClaimAnother, Next, commit
from runs.attempt.deadline import run_within
from runs.attempt.effects import rows_of
from runs.attempt.failure import outcome_of
from runs.attempt.gate import keep_state
from runs.attempt.hooks import Hook, hooks_after, run_hooks
from runs.attempt.ownership import committed
from runs.claim import Claim
from runs.db.session import ReadOnly, read_only
from runs.durable import journal_rows
from runs.durable.ends import outcome_of_end
from runs.durable.store import DatabaseStore
from runs.exceptions import CannotClaim, RunLost
from runs.failpoints import failpoint
from runs.models import Attempt
from runs.ports import ports
from runs.retention.payloads import remove_conversation
from runs.states import RunStatus
from runs.transitions.outcome import Outcome
from runs.waits import LOOKED_BACK_FOR

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Ended:
    """The end of an attempt: its outcome, or None if its success is committed; with `next`, the run claimed in the same commit."""

    outcome: Outcome | None = None
    next: Claim | None = None
    is_recorded: bool = False


def run_body(claim: Claim, agent: Agent, claim_another: ClaimAnother) -> Ended:
    run = run_durable if agent.durable else run_atomic
    try:
        return run(claim, agent, Next(claim_another))
    except CannotClaim:
        log.warning("run.claimed_nothing_along", run=str(claim.run_id), exc_info=True)
        return run(claim, agent, Next())  # the transaction of the claim was rolled back


def run_atomic(claim: Claim, agent: Agent, next: Next) -> Ended:
    # The agent is no longer durable, or not yet durable in this worker's version.
    if has_journal(claim):
        return Ended(has_a_journal_that_is_not_used(claim))
    lines = LogLines()
    run = run_of(claim, hold_items=holding(claim), lines=lines)
    try:
        run_hooks(claim, commit_with_body(claim, agent, run, next, lines))
    except BaseException as error:
        # The transaction of the body is rolled back; that of the failure takes its lines along.
        return ended_by(error, claim, next, is_tainted=run.is_tainted, lines=lines)
    return Ended(next=next.claimed)


def commit_with_body(claim: Claim, agent: Agent, run: AgentRun, next: Next, lines: LogLines) -> list[Hook]:
    """Run the body of an atomic agent and commit it; return its hooks."""
    with transaction.atomic():
        before = len(connection.run_on_commit)
        # In this order: a late SIGALRM in the exit of `atomic_body` would leave its refusal on for the next run.
        with noticing_changes(), atomic_body(claim.agent):
            result = run_within(agent, run, claim.policy.timeout)
        failpoint("after_body")
        reset_settings(claim.session_name)
        hooks = hooks_after(before)
        success = success_of(claim, result, run.effects, is_tainted=run.is_tainted, log=lines.chunk())
        # No next claim before hooks: the claimed run would wait for them while its time runs.
        commit(claim, success, Next() if hooks else next)
    failpoint("after_commit")
    return hooks


def run_durable(claim: Claim, agent: Agent, next: Next) -> Ended:
    """Replay the body to the end of its journal, and go on to the commit of its success, or of its outcome: the run waits, is
    parked, failed or will be retried."""
    with read_only(claim.session_name, *journal_rows.queries_of(claim.run_id)) as session:
        store = DatabaseStore(claim, *journal_rows.of_rows(*session.rows))
        journal = Journal(store)
        lines = LogLines(
            is_kept=claim.policy.keep_content, is_replayed=lambda: journal.replayed_to < journal.recorded_to
        )
        store.log_lines = lines
        run = run_of(claim, journal, holding(claim, journal), agent.connections, lines)
        try:
            with noticing_changes():
                result = run_within(agent, AsyncAgentRun(run, journal) if agent.is_async else run, claim.policy.timeout)
            journal.require_end()
        except BaseException as error:
            # The body may have caught the interruption.
            outcome = outcome_of_end(journal.end or error, store)
            outcome = replace(outcome, is_tainted=store.is_tainted, log=lines.chunk())
            return ended_at_once(claim, outcome, next, session)
        failpoint("after_body")
        reset_settings(claim.session_name)
        try:
            with session.last_transaction() as last:
                keeps = claim.policy.keep_content
                entries = journal.pending if keeps else remove_conversation(claim.run_id, journal.pending)
                success = success_of(claim, result, run.effects, entries, is_tainted=run.is_tainted, log=lines.chunk())
                commit(claim, success, next, before=last)
            failpoint("after_commit")
        except BaseException as error:
            return ended_by(error, claim, next, is_tainted=run.is_tainted, lines=lines)
    return Ended(next=next.claimed)


def ended_at_once(claim: Claim, outcome: Outcome, next: Next, session: ReadOnly) -> Ended:
    """Record the outcome in the round trip that also claims the next run. If that fails, for whatever reason, the caller records it,
    which retries, and cancels the run instead where that is wanted."""
    reset_settings(claim.session_name)
    try:
        with session.last_transaction() as last:
            # A look back may end the wait, and its run is the next one.
            along = Next() if looks_back(outcome) else next
            commit(claim, outcome, along, before=last, point="before_record_commit")
    except Exception:
        log.info("run.not_recorded_at_once", run=str(claim.run_id), agent=claim.agent, exc_info=True)
        return Ended(outcome)
    failpoint("after_record_commit")
    return Ended(outcome, along.claimed, is_recorded=True)


def looks_back(outcome: Outcome) -> bool:
    return outcome.wait is not None and outcome.wait.kind in LOOKED_BACK_FOR


def ended_by(error: BaseException, claim: Claim, next: Next, *, is_tainted: bool, lines: LogLines) -> Ended:
    """The end of an attempt that raised, perhaps after its commit. Re-raises an error that does not end the body."""
    if isinstance(error, RunLost | CannotClaim):
        raise error
    clean()
    if committed(claim):
        log.warning("run.error_after_commit", run=str(claim.run_id), agent=claim.agent, exc_info=True)
        return Ended(next=next.claimed)
    return Ended(replace(outcome_of(error, claim), is_tainted=is_tainted, log=lines.chunk()))


def run_of(
    claim: Claim,
    journal: Journal | None = None,
    hold_items: HoldItems = list,
    may_use: MayUse = MayUse(),  # noqa: B008  (frozen)
    lines: LogLines | None = None,
) -> AgentRun:
    return AgentRun(
        id=claim.run_id,
        agent=claim.agent,
        attempt=claim.attempt,
        trigger=claim.trigger,
        input=claim.input,
        read_events=lambda: ports.read_events(claim.event_ids),
        journal=journal,
        tools=narrowed(claim.policy.tools, None),
        may_use=may_use,
        is_tainted=claim.is_tainted,
        from_strangers=lambda: ports.from_strangers([*claim.event_ids, claim.root_id]),
        fired=claim.fired,
        hold_items=hold_items,
        find_place=lambda event_id: ports.reply_place(event_id),
        log_lines=lines,
    )


def has_journal(claim: Claim) -> bool:
    """Did any version of the code execute this run durably? Versions before `Run.has_journal` did not record that, so this looks
    for entries of a run that was claimed before, or forked."""
    was_begun = claim.epoch > 1 or claim.policy.durable
    return claim.has_journal or (was_begun and journal_rows.has_entries(claim.run_id))


def has_a_journal_that_is_not_used(claim: Claim) -> Outcome:
    return Outcome(
        status=RunStatus.UNCERTAIN,
        attempt=Attempt.Outcome.UNCERTAIN,
        reason="it has a journal, but its agent is atomic in this worker's code, which would repeat every step",
        holds_key=claim.policy.holds_key_while_waiting(claim.key_limit),
    )


def success_of(
    claim: Claim,
    result: Any,
    effects: Effects,
    entries: Sequence[StepEntry] | None = None,
    *,
    is_tainted: bool = False,
    log: LogChunk | None = None,
) -> Outcome:
    """The outcome of a body that returned. In the body's transaction, before its commit: some effects are written at once.

    Without a journal, `entries` is None. With one, the attempt has a row, as progress has changed the run's count of attempts.
    """
    if is_tainted:
        effects.taint()
        if not claim.is_tainted:
            ports.taint_changes(claim.run_id)
    rows = rows_of(claim, effects)
    keep_state(claim)
    return Outcome(
        status=RunStatus.SUCCEEDED,
        attempt=None if entries is None else Attempt.Outcome.SUCCEEDED,
        result=storable(result, "its result"),
        outbound=rows.outbound,
        notices=rows.notices,
        entries=entries or (),
        is_tainted=is_tainted,
        log=log,
    )
