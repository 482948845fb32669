"""Call an agent's gate, which decides whether a run begins (`agents.gate`).

A gate is the agent's own code, so it executes where bodies do: in the child of a worker that has claimed the run, never in the
dispatcher. The dispatcher inserts the run as that of any other agent; it is the gate's place in the queue, and all that holds for
a run holds for its gate: one at a time for each key, queues and stops, a lease, a deadline that the parent enforces, retries.

1. The gate reads in a read-only session, outside of a transaction, for at most WAKEFUL_GATE_TIMEOUT; if the signal does not end
   it, the parent ends its process.
2. `Quiet`: one transaction counts the answer, writes a decision for each event, gives the place of the key to the next run and
   deletes the run, behind its fence. A run that was claimed before, or that a person forked, has a history: it stays, and
   succeeds with the reason as its result.
3. `Fire`: the answer is committed with the run, behind its fence, before the body begins. From then on no claim asks the gate
   again, so a killed or failed body goes on with the answer it had.
4. The commit of the run's success keeps the state of the answer (`keep_state`), by compare-and-set: of two runs that read the same
   state, the first to succeed keeps its own, and the things of the other fire again.
5. A gate that raises, hangs or answers nonsense fails the attempt: it is retried with backoff, and then the run fails, which
   is shown, counted and pauses its trigger like any other failure.

A process that dies before one of these commits has changed nothing; after it, the next claim finds the answer or no run.
"""

from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction
from psycopg.types.json import Jsonb

from agents.agent import Agent
from agents.exceptions import describe
from agents.gate import Fire, Quiet, checked
from agents.gate_run import GateRun
from agents.guards.sql_writes import gate_writing_refused
from runs.attempt.checklist_items import free_items
from runs.attempt.clean_session import noticing_changes
from runs.attempt.deadline import deadline
from runs.attempt.failure import as_permanent, outcome_of
from runs.claim import HARD_DEADLINE_AFTER, Claim
from runs.db.outage import CONNECTION_ERRORS
from runs.db.session import read_only
from runs.db.sql import database_now, fetch
from runs.exceptions import DeadlineExceeded, GateWasQuiet, RunLost
from runs.failpoints import failpoint
from runs.models import Attempt
from runs.ports import GateSubject, Last, ports
from runs.states import RunStatus
from runs.transitions.leave import ON_ITS_TIMELINE, leave
from runs.transitions.outcome import Outcome
from runs.transitions.reports import Unstarted, report_unstarted
from runs.transitions.withdraw import withdraw

log = structlog.get_logger(__name__)

# The parent also kills a child whose gate ignores the signal, long before the body's deadline.
LIMITED = f"""
UPDATE runs_run SET deadline_at = clock_timestamp() + make_interval(secs => %(seconds)s::float8)
WHERE id = %(id)s::uuid AND epoch = %(epoch)s::int AND claim IS NOT DISTINCT FROM %(claim)s::uuid {ON_ITS_TIMELINE}
RETURNING id
"""  # noqa: S608  (our own parts)
# The timeout of the body starts now.
FIRED = LIMITED.replace("SET ", "SET fired = %(fired)s::jsonb, is_tainted = is_tainted OR %(is_tainted)s::boolean, ")


def must_ask(claim: Claim, agent: Agent) -> bool:
    """A child run has no trigger: its parent has decided that it begins. A run with a journal began before its agent had a gate."""
    return agent.gate is not None and claim.trigger_id is not None and claim.fired is None and not claim.has_journal


def ask_gate(claim: Claim, agent: Agent) -> Claim | Outcome:
    """Call the gate; return the claim to execute the body with, or an outcome if the gate failed. GateWasQuiet: the run
    is over. RunLost: another process owns the run.
    """
    asked = asked_of(claim)
    seconds = min(settings.WAKEFUL_GATE_TIMEOUT.total_seconds(), claim.policy.timeout)
    _limit(claim, LIMITED, seconds)
    last = ports.gates.last(asked)
    run = _gate_run(claim, last)
    try:
        answer = _answer(claim, agent, run, seconds)
    except BaseException as error:
        outcome = _failed(as_permanent(error, gate_writing_refused), claim, asked)
        return replace(outcome, is_tainted=run.is_tainted)
    failpoint("after_gate")
    if isinstance(answer, Fire):
        return _fire(claim, asked, answer, last.revision, run.is_tainted)
    _end_quietly(replace(claim, is_tainted=run.is_tainted), asked, answer)
    raise GateWasQuiet


def asked_of(claim: Claim) -> GateSubject:
    assert claim.trigger_id is not None  # noqa: S101  (must_ask)
    return GateSubject(
        run_id=claim.run_id,
        trigger_id=claim.trigger_id,
        agent=claim.agent,
        event_ids=claim.event_ids,
        replay_id=claim.replay_id,
    )


def keep_state(claim: Claim) -> None:
    """Keep the state of the gate that let this run begin; call it in the transaction of the success, before its fence."""
    if claim.fired is None or claim.fired.state is None or claim.trigger_id is None:
        return
    new = Last(state=claim.fired.state, is_tainted=claim.gate_is_tainted, revision=claim.gate_revision)
    if not ports.gates.keep(claim.trigger_id, claim.agent, new):
        log.info("gate.state_not_kept", run=str(claim.run_id), trigger=claim.trigger)


def _gate_run(claim: Claim, last: Last) -> GateRun:
    return GateRun(
        agent=claim.agent,
        trigger=claim.trigger,
        input=claim.input,
        last=last.state,
        is_last_tainted=last.is_tainted,
        read_events=lambda: ports.read_events(claim.event_ids),
        read_now=database_now,
        is_tainted=claim.is_tainted,
        free_items=free_items,
    )


def _answer(claim: Claim, agent: Agent, run: GateRun, seconds: float) -> Fire | Quiet:
    assert agent.gate is not None  # noqa: S101  (must_ask)
    try:
        with read_only(claim.session_name), noticing_changes(), deadline(seconds):
            return checked(agent.gate(run), agent.name)
    except DeadlineExceeded:
        raise TimeoutError(f"the gate took longer than {seconds:g} s (WAKEFUL_GATE_TIMEOUT)") from None


def _fire(claim: Claim, asked: GateSubject, answer: Fire, revision: int, is_tainted: bool) -> Claim:
    with transaction.atomic():
        ports.gates.fired(asked, answer.reason)
        fired = Jsonb({**asdict(answer), "revision": revision, "is_tainted": is_tainted})
        _limit(claim, FIRED, claim.policy.timeout, fired=fired, is_tainted=is_tainted)
        failpoint("before_gate_commit")
    failpoint("after_gate_commit")
    return replace(claim, fired=answer, gate_revision=revision, gate_is_tainted=is_tainted, is_tainted=is_tainted)


def _limit(claim: Claim, statement: str, seconds: float, **more: Any) -> None:
    fence = {"id": claim.run_id, "epoch": claim.epoch, "claim": claim.id, "timeline": claim.timeline}
    if not fetch(statement, {**fence, **more, "seconds": seconds + HARD_DEADLINE_AFTER}):
        raise RunLost(f"run {claim.run_id} left epoch {claim.epoch}")


def _end_quietly(claim: Claim, asked: GateSubject, answer: Quiet) -> None:
    if claim.epoch > 1 or not _withdraw(claim, asked, answer):
        _succeed(claim, asked, answer)
    failpoint("after_gate_commit")
    log.info("gate.quiet", run=str(claim.run_id), trigger=claim.trigger, reason=answer.reason)


def _withdraw(claim: Claim, asked: GateSubject, answer: Quiet) -> bool:
    with transaction.atomic():
        ports.gates.quiet(asked, answer.reason)
        report_unstarted(_unstarted(claim, answer))
        is_gone = withdraw(claim.ticket)
        failpoint("before_gate_commit")
        transaction.set_rollback(not is_gone)
    return is_gone


def _unstarted(claim: Claim, answer: Quiet) -> Unstarted:
    return Unstarted(
        reports=claim.policy.reports,
        agent=claim.agent,
        trigger=claim.trigger,
        event_id=claim.event_ids[-1],
        root_id=claim.root_id,
        reason=f"its gate was quiet: {answer.reason}",
        priority=claim.policy.priority,
        depth=claim.depth,
        chain=claim.chain,
        is_tainted=claim.is_tainted,
    )


def _succeed(claim: Claim, asked: GateSubject, answer: Quiet) -> None:
    """End a run that already has a history as succeeded: its row shows the outcome, so no decision is needed."""
    with transaction.atomic():
        ports.gates.quiet(replace(asked, event_ids=()), answer.reason)
        leave(
            claim.ticket,
            Outcome(
                status=RunStatus.SUCCEEDED,
                attempt=Attempt.Outcome.SUCCEEDED,
                result={"quiet": answer.reason},
                is_tainted=claim.is_tainted,
            ),
        )


def _failed(error: BaseException, claim: Claim, asked: GateSubject) -> Outcome:
    with suppress(*CONNECTION_ERRORS):  # only a counter; the run's outcome is recorded elsewhere
        ports.gates.failed(asked, describe(error))
    outcome = outcome_of(error, claim)
    return replace(outcome, reason=f"its gate failed; {outcome.reason}")
