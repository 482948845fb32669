"""End a claim, or take a run out of any live status: one statement for every transition.

The compare-and-set on the epoch and the claim's identity is the fence (after a failover that lost a claim, another claim may have
the same epoch). It is in the last statement of the transaction. If it matches no row, that statement writes nothing else either:
no attempt, ledger or outbox row, no promotion of the key's next run.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from psycopg.types.json import Jsonb

from agents import telemetry
from runs import keys
from runs.db.nudge import nudge_dispatcher, nudge_later
from runs.db.sql import Query, execute, fetch
from runs.exceptions import RunLost
from runs.failpoints import failpoint
from runs.models import Run, Wait
from runs.states import FINISHED, RunStatus
from runs.transitions.entries import (
    ASKED,
    CALLED,
    JOURNALED,
    LOGGED,
    WAITED,
    log_parameters,
    step_parameters,
    wait_parameters,
)
from runs.transitions.failure_log import Whose, log_failure
from runs.transitions.outcome import GOES_ON, Leaves, Outbound, Outcome, Ticket
from runs.transitions.spans import tell_of_end

# Finished runs are reported on a grid of half seconds: one by one, the dispatcher would spend more on the reports than on
# dispatching (measured: a third of all CPU).
FINISHED_MESSAGE = """
  SELECT 'run.finished', id::text,
         jsonb_build_object('run', id, 'agent', agent, 'trigger', trigger_id, 'status', %(status)s::text, 'error', %(error)s::text),
         0, '', date_bin('500 ms', clock_timestamp(), 'epoch') + interval '500 ms'
  FROM gone
"""
# A statement has only the parts that an outcome needs: PostgreSQL prepares every part, used or not.
GONE = """
WITH gone AS (
  UPDATE runs_run SET
    status = %(status)s::text,
    status_reason = %(reason)s::text,
    ready_at = CASE WHEN %(queued)s::boolean AND %(due_in)s::interval IS NULL THEN clock_timestamp() END,
    due_at = CASE WHEN %(queued)s::boolean THEN clock_timestamp() + %(due_in)s::interval END,
    slot = CASE WHEN %(keeps_place)s::boolean THEN slot END,
    attempt = CASE WHEN %(waits)s::boolean THEN 0 ELSE greatest(attempt - %(given_back)s::int, 0) END,
    epoch = epoch + %(fenced)s::int,
    has_journal = has_journal OR %(journaled)s::boolean,
    is_tainted = is_tainted OR %(is_tainted)s::boolean,
    result = %(result)s::jsonb,
    error = %(error)s::text,
    finished_at = CASE WHEN %(finished)s::boolean THEN clock_timestamp() END
  WHERE id = %(id)s::uuid AND epoch = %(epoch)s::int AND claim IS NOT DISTINCT FROM %(claim)s::uuid
    AND NOT (%(goes_on)s::boolean AND cancel_requested_at IS NOT NULL) {guard}
  RETURNING id, key, agent, trigger, trigger_id, event_ids, replay_id, attempt, worker_id, pid, claimed_at, parent_id,
    queue, priority, turn
)"""
ATTEMPTED = """attempted AS (
  INSERT INTO runs_attemptrow (run_id, epoch, number, worker_id, pid, started_at, ended_at, outcome, error, traceback)
  SELECT id, %(claim_epoch)s::int, coalesce(%(number)s::int, attempt + %(given_back)s::int), worker_id, pid, claimed_at, clock_timestamp(),
         %(outcome)s::text, %(error)s::text, %(traceback)s::text
  FROM gone
)"""
LEDGER = """ledger AS (
  INSERT INTO runs_processedevent (event_id, consumer, replay_id, run_id)
  SELECT unnest(event_ids), trigger, replay_id, id FROM gone WHERE trigger <> ''
)"""
SENT = """sent AS (
  INSERT INTO runs_outboxmessage (topic, key, payload, attempts, last_error, available_at)
  SELECT message.topic, message.key, message.payload, 0, '', clock_timestamp() + make_interval(secs => message.due_in)
  FROM {run}, unnest(%(topics)s::text[], %(keys)s::text[], %(payloads)s::text[]::jsonb[], %(dues)s::float8[])
    AS message(topic, key, payload, due_in)
)"""
TOLD = """told AS (
  INSERT INTO runs_outboxmessage (topic, key, payload, attempts, last_error, available_at)
  {finished}
)""".replace("{finished}", FINISHED_MESSAGE.strip())
# The parent may wait for it. The reader of the message checks whether other children are live.
REPORTED = """reported AS (
  INSERT INTO runs_outboxmessage (topic, key, payload, attempts, last_error, available_at)
  SELECT 'child.finished', parent_id::text, jsonb_build_object('parent', parent_id, 'run', id, 'status', %(status)s::text), 0, '',
         clock_timestamp()
  FROM gone WHERE parent_id IS NOT NULL
)"""
# Close the wait of a stopped run: it needs no decision, and no event wakes the run.
CLOSED = """closed AS (
  UPDATE runs_wait SET status = 'closed', ended_at = clock_timestamp() FROM gone
  WHERE runs_wait.run_id = gone.id AND runs_wait.status = 'open'
)"""
NOTED = """noted AS (
  INSERT INTO runs_notification (sender, run_id, urgency, text, topic, link, "to")
  SELECT notice.sender, run.id, notice.urgency, notice.text, notice.topic, notice.link,
         ARRAY(SELECT jsonb_array_elements_text(notice.names))
  FROM {run} AS run,
    unnest(%(senders)s::text[], %(urgencies)s::text[], %(texts)s::text[], %(topics_told)s::text[], %(links)s::text[],
           %(names)s::text[]::jsonb[]) AS notice(sender, urgency, text, topic, link, names)
)"""
PROMOTED = """promoted AS (
  UPDATE runs_run SET ready_at = clock_timestamp(), slot = placed.slot, turn = coalesce(runs_run.turn, placed.turn)
  FROM ({placed}) placed
  WHERE runs_run.id = placed.id
  RETURNING runs_run.id
)""".replace("{placed}", keys.PLACED.replace("{next}", keys.NEXT))
PROMOTED = PROMOTED.replace("{freed}", "(SELECT key, id FROM gone)")
# When the run was claimed, no ready run had a lower turn.
PROMOTED = PROMOTED.replace(
    "{since}", "coalesce((SELECT turn FROM gone WHERE (gone.queue, gone.priority) = (run.queue, run.priority)), 0)"
)
# The owner's fence names no status: with `status = 'running'` the planner would use the small partial index and its dead entries
# instead of the primary key. Other processes compare the status and slot that they decided on: a blocked run may have got its
# key's slot since, and would keep it.
#
# After a failover the new primary may lack earlier commits of this claim, so the claim must commit nothing more.
ON_ITS_TIMELINE = "AND (%(timeline)s::text = '' OR runs_timeline() IN ('', %(timeline)s::text))"
BY_OWNER = GONE.replace("{guard}", ON_ITS_TIMELINE)
FENCED = "WF001"  # the SQLSTATE of runs_fenced()
BY_OTHERS = GONE.replace(
    "{guard}", "AND coalesce(status, '') = %(expected)s::text AND slot IS NOT DISTINCT FROM %(slot)s::smallint"
)
# Runs without a place have no owner, and their end makes no room for another run.
TAKE_BLOCKED = """
WITH gone AS (
  UPDATE runs_run SET
    status = %(status)s::text, status_reason = %(reason)s::text, due_at = NULL, epoch = epoch + 1, result = NULL,
    error = %(error)s::text, finished_at = clock_timestamp()
  WHERE id IN (
    SELECT id FROM runs_run
    WHERE key = %(key)s::text AND status = 'queued' AND slot IS NULL AND id IS DISTINCT FROM %(but)s::uuid
    ORDER BY seq LIMIT %(most)s::int)
  RETURNING id, agent, trigger_id
)
INSERT INTO runs_outboxmessage (topic, key, payload, attempts, last_error, available_at)
{finished}
""".replace("{finished}", FINISHED_MESSAGE.strip())


def leave(ticket: Ticket, outcome: Outcome) -> None:
    """End the owner's claim, as the last statement of the caller's transaction. RunLost: roll back and stop."""
    if not _leave(BY_OWNER, ticket, outcome, fenced=0):
        raise RunLost(f"run {ticket.run_id} left epoch {ticket.epoch}")


def take_away(ticket: Ticket, outcome: Outcome, *, expected: RunStatus, claim_epoch: int | None = None) -> bool:
    """Change a run that another process owns, or none. Its epoch rises, so the old owner's fence fails at once.

    False: its status, epoch or slot is no longer the expected one, and nothing was changed. `claim_epoch` is the epoch of the
    claim that ends, if a fence has raised the run's epoch since.
    """
    with transaction.atomic():
        taken = _leave(BY_OTHERS, ticket, outcome, fenced=1, expected=expected, claim_epoch=claim_epoch)
        failpoint("before_take_away_commit")
    failpoint("after_take_away_commit")
    return taken


def take_blocked_away(key: str, *, reason: str, but: UUID | None = None, most: int | None = None) -> int:
    """Cancel the runs of a key that wait for a place, except `but`, at most `most`; return how many. Call it under the key's
    lock."""
    names = {"key": key, "but": but, "most": most, "reason": reason, "status": RunStatus.CANCELLED, "error": ""}
    if taken := execute(TAKE_BLOCKED, names):
        nudge_dispatcher()
    return taken


def ends_of(ticket: Ticket, outcome: Outcome) -> list[Query]:
    """The statements that end the owner's claim, for a trip that commits them. The last one fails with FENCED if the claim no longer
    owns the run, or if the run is to be cancelled and would go on; otherwise it says whether there is news, for `tell`."""
    end, is_news, parameters = _end(BY_OWNER, ticket, outcome, fenced=0)
    locks: list[Query] = [(keys.LOCK, [ticket.key])] if _frees_key(ticket, outcome) else []
    return [*locks, (f"{end}\nSELECT coalesce((SELECT {is_news} FROM gone), runs_fenced())", parameters)]  # noqa: S608


def _leave(gone: str, ticket: Ticket, outcome: Outcome, **how: Any) -> bool:
    if outcome.status in GOES_ON:
        if ticket.key and _frees_key(ticket, outcome):
            keys.lock(ticket.key)
        if _execute(gone, ticket, outcome, **how):
            return True
        if not _cancel_requested(ticket):
            return False
        # A cancelled run must not go on or ask for an approval.
        outcome = replace(outcome, status=RunStatus.CANCELLED, reason="cancelled", due_in=None, wait=None, notices=())
    if ticket.key:
        keys.lock(ticket.key)
    return _execute(gone, ticket, outcome, **how)


def _frees_key(ticket: Ticket, outcome: Outcome) -> bool:
    return ticket.key is not None and not _keeps_place(ticket, outcome)


def _keeps_place(ticket: Ticket, outcome: Outcome) -> bool:
    """A backoff keeps its place only if the key's limit is 1: no other run may pass it. A wait keeps it if its outcome
    holds the key.
    """
    if outcome.status in (RunStatus.WAITING, RunStatus.UNCERTAIN):
        return outcome.holds_key
    return outcome.status == RunStatus.QUEUED and (outcome.due_in is None or ticket.key_limit == 1)


def _cancel_requested(ticket: Ticket) -> bool:
    runs = Run.objects.filter(pk=ticket.run_id, epoch=ticket.epoch, claim=ticket.claim, status=RunStatus.RUNNING)
    return runs.exclude(cancel_requested_at=None).exists()


def _parts(ticket: Ticket, outcome: Outcome, expected: RunStatus | None) -> dict[str, bool]:
    """The parts of the statement after the fence, and whether this outcome needs them."""
    return {
        ATTEMPTED: outcome.attempt is not None,
        LEDGER: outcome.status == RunStatus.SUCCEEDED,
        JOURNALED: bool(outcome.entries),
        LOGGED: outcome.log is not None,
        WAITED: outcome.wait is not None,
        ASKED: outcome.wait is not None and outcome.wait.approval is not None,
        CALLED: outcome.wait is not None and outcome.wait.call is not None,
        SENT: bool(outcome.outbound),
        TOLD: outcome.status in FINISHED,
        REPORTED: outcome.status in FINISHED and ticket.may_have_parent,
        CLOSED: expected == RunStatus.WAITING,
        NOTED: bool(outcome.notices),
        # Also for a run without a place: with a limit of 1, other runs may have waited behind it.
        PROMOTED: _frees_key(ticket, outcome),
    }


def _execute(gone: str, ticket: Ticket, outcome: Outcome, **how: Any) -> bool:
    end, is_news, parameters = _end(gone, ticket, outcome, **how)
    left = fetch(f"{end}\nSELECT {is_news}, agent, trigger FROM gone", parameters)
    for news, agent, trigger in left:
        tell(ticket, outcome, Whose(ticket.run_id, agent, trigger), news, parameters["claim_epoch"])
    return bool(left)


def _end(
    gone: str,
    ticket: Ticket,
    outcome: Outcome,
    *,
    fenced: int,
    expected: RunStatus | None = None,
    claim_epoch: int | None = None,
) -> tuple[str, str, dict[str, Any]]:
    """The statement without its last SELECT, the expression for that: is there news for the dispatcher? And the parameters."""
    parameters: dict[str, Any] = effect_parameters(outcome) | {
        "id": ticket.run_id,
        "epoch": ticket.epoch,
        "claim": ticket.claim,
        "timeline": ticket.timeline,
        "claim_epoch": ticket.epoch if claim_epoch is None else claim_epoch,
        "slot": ticket.slot,
        "expected": expected,
        "fenced": fenced,
        "status": outcome.status,
        "queued": outcome.status == RunStatus.QUEUED,
        "goes_on": outcome.status in GOES_ON,
        "keeps_place": _keeps_place(ticket, outcome),
        "finished": outcome.status in FINISHED,
        "reason": outcome.reason,
        "due_in": outcome.due_in,
        "given_back": int(outcome.give_back),
        "waits": outcome.status == RunStatus.WAITING,
        "number": ticket.attempt,
        "journaled": bool(outcome.entries) or outcome.wait is not None,
        "is_tainted": outcome.is_tainted,
        "result": None if outcome.result is None else Jsonb(outcome.result),
        "error": outcome.error,
        "traceback": outcome.traceback,
        "outcome": outcome.attempt,
    }
    if outcome.entries:
        parameters |= step_parameters(outcome.entries)
    if outcome.log:
        parameters |= log_parameters(outcome.log, parameters["claim_epoch"])
    if outcome.wait:
        parameters |= wait_parameters(outcome.wait)
    parts = _parts(ticket, outcome, expected)
    promotes = "EXISTS (SELECT FROM promoted)" if parts[PROMOTED] else "false"
    return f"{gone}{hanging(parts, on='gone')}", f"parent_id IS NOT NULL OR {promotes}", parameters


def tell(ticket: Ticket, outcome: Outcome, whose: Whose, is_news: bool, claim_epoch: int) -> None:
    """Report the end, once it is committed: to the dispatcher, to the log if the run has failed, and to OpenTelemetry."""
    if is_news or _is_awaited(outcome) or are_due_soon(outcome.outbound):
        nudge_dispatcher()
    else:
        nudge_later()
    if outcome.status == RunStatus.FAILED:
        transaction.on_commit(partial(log_failure, whose, outcome), robust=True)
    if telemetry.is_on():
        transaction.on_commit(partial(tell_of_end, ticket.run_id, claim_epoch), robust=True)


def _is_awaited(outcome: Outcome) -> bool:
    """Should the dispatcher be woken for it at once? A run that waits for long, or for an event, needs it no sooner than others do."""
    if outcome.status != RunStatus.WAITING or outcome.wait is None:
        return outcome.status != RunStatus.SUCCEEDED
    wait = outcome.wait
    if wait.kind not in (Wait.Kind.TIME, Wait.Kind.EVENT) or wait.until is not None or outcome.notices:
        return True
    return wait.duration is not None and wait.duration < settings.WAKEFUL_SAFETY_LOOK


def are_due_soon(messages: Sequence[Outbound]) -> bool:
    """Is a message due before the dispatcher's safety look? NOTIFY takes a lock that all databases of the server share."""
    return any(message.due_in < settings.WAKEFUL_SAFETY_LOOK for message in messages)


def hanging(parts: Mapping[str, Any], *, on: str) -> str:
    """The needed parts, as SQL that follows the fence `on`."""
    return "".join(f", {part}" for part, is_needed in parts.items() if is_needed).replace("{run}", on)


def effect_parameters(leaves: Leaves) -> dict[str, Any]:
    return {
        "topics": [message.topic for message in leaves.outbound],
        "keys": [message.key for message in leaves.outbound],
        "payloads": [json.dumps(message.payload) for message in leaves.outbound],
        "dues": [message.due_in.total_seconds() for message in leaves.outbound],
        "senders": [notice.sender for notice in leaves.notices],
        "urgencies": [notice.urgency for notice in leaves.notices],
        "texts": [notice.text for notice in leaves.notices],
        "topics_told": [notice.topic for notice in leaves.notices],
        "links": [notice.link for notice in leaves.notices],
        "names": [json.dumps(list(notice.to)) for notice in leaves.notices],
    }
