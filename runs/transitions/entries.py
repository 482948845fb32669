"""Entries of a run's journal, as parts of a statement with a fence."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from agents.journal.canonical import digest_of, match_of
from agents.journal.entries import StepEntry
from agents.kernel.log_lines import LogChunk
from runs.models import Approval, Wait


@dataclass(frozen=True, kw_only=True)
class ApprovalEntry:
    """The question of an approval."""

    id: UUID
    question: str
    detail: str
    arguments: Any
    on_expiry: Approval.OnExpiry

    @property
    def digest(self) -> str:
        return digest_of(self.question, self.arguments)


@dataclass(frozen=True, kw_only=True)
class CallEntry:
    """A request to a model that another process makes, and the step that its answer becomes."""

    step: Mapping[str, Any]
    content: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class WaitEntry:
    """A wait to write. It ends after `duration` or at `until`, if either is given."""

    key: str
    position: int
    is_keyed: bool
    kind: Wait.Kind
    duration: timedelta | None = None
    until: datetime | None = None
    event_type: str = ""
    event_source: str = ""
    match: Mapping[str, Any] | None = None
    children: Sequence[UUID] = ()
    asked: Mapping[str, Any] | None = None  # of a wait for budget or a session
    approval: ApprovalEntry | None = None
    event_id: UUID | None = None  # the event that was there already
    taken: Sequence[UUID] = ()  # the events that ended earlier waits of the run
    call: CallEntry | None = None


# `{run}` is the part of the statement with the fence; without a row of it nothing is written.
JOURNALED = """journaled AS (
  INSERT INTO runs_step (run_id, key, position, is_keyed, effect, status, epoch, claim, attempts, arguments, output, error,
                         error_kind, is_permanent, kind, usage, started_at, ended_at)
  SELECT run.id, entry.key, entry.position, entry.is_keyed, entry.effect, entry.status, %(epoch)s::int, %(claim)s::uuid, entry.attempts,
         entry.arguments, entry.output, entry.error, entry.error_kind, entry.is_permanent, entry.kind, entry.usage,
         clock_timestamp() - make_interval(secs => entry.took), CASE WHEN entry.status <> 'started' THEN clock_timestamp() END
  FROM {run} AS run, unnest(%(step_keys)s::text[], %(step_positions)s::int[], %(step_keyed)s::boolean[], %(step_effects)s::text[],
    %(step_statuses)s::text[], %(step_attempts)s::int[], %(step_arguments)s::text[]::jsonb[], %(step_outputs)s::text[]::jsonb[],
    %(step_errors)s::text[], %(step_kinds)s::text[], %(step_permanent)s::boolean[], %(step_took)s::float8[],
    %(step_kind)s::text[], %(step_usages)s::text[]::jsonb[])
    AS entry(key, position, is_keyed, effect, status, attempts, arguments, output, error, error_kind, is_permanent, took, kind, usage)
  ON CONFLICT (run_id, key) DO UPDATE SET
    position = excluded.position, effect = excluded.effect, status = excluded.status, epoch = excluded.epoch, claim = excluded.claim,
    attempts = excluded.attempts, arguments = coalesce(excluded.arguments, runs_step.arguments), output = excluded.output,
    error = excluded.error, error_kind = excluded.error_kind, is_permanent = excluded.is_permanent, usage = excluded.usage,
    ended_at = excluded.ended_at
)"""
# A requeued run opens a wait again that its cancellation closed; the deadline does not change.
WAITED = """waited AS (
  INSERT INTO runs_wait (run_id, key, position, is_keyed, kind, status, due_at, event_type, match, match_shape, match_hash, children, asked)
  SELECT run.id, %(wait_key)s::text, %(wait_position)s::int, %(wait_keyed)s::boolean, %(wait_kind)s::text, 'open',
         coalesce(%(wait_until)s::timestamptz, clock_timestamp() + %(wait_duration)s::interval),
         %(wait_event_type)s::text, %(wait_match)s::jsonb, %(wait_shape)s::text, %(wait_hash)s::text, %(wait_children)s::uuid[],
         %(wait_asked)s::jsonb
  FROM {run} AS run
  ON CONFLICT (run_id, key) DO UPDATE SET
    status = 'open', ended_at = NULL, looked_at = NULL, look_after = NULL, looked_to = NULL, look_failures = 0
  WHERE runs_wait.status = 'closed'
  RETURNING id
)"""
# A wait that ended before it began.
ANSWERED = """answered AS (
  INSERT INTO runs_wait (run_id, key, position, is_keyed, kind, status, due_at, event_type, match, match_shape, match_hash, children,
                         event_id, looked_at, ended_at)
  SELECT run.id, %(wait_key)s::text, %(wait_position)s::int, %(wait_keyed)s::boolean, %(wait_kind)s::text, 'done',
         clock_timestamp() + %(wait_duration)s::interval, %(wait_event_type)s::text, %(wait_match)s::jsonb, %(wait_shape)s::text,
         %(wait_hash)s::text, '{}', %(wait_event)s::uuid, clock_timestamp(), clock_timestamp()
  FROM {run} AS run
)"""
ASKED = """asked AS (
  INSERT INTO runs_approval (id, wait_id, question, detail, arguments, digest, on_expiry, decision, decided_digest, decided_by, reason)
  SELECT %(approval_id)s::uuid, waited.id, %(approval_question)s::text, %(approval_detail)s::text, %(approval_arguments)s::jsonb,
         %(approval_digest)s::text, %(approval_on_expiry)s::text, '', '', '', ''
  FROM waited
  ON CONFLICT (wait_id) DO NOTHING
)"""

# Of a wait that is opened again, the request of this claim.
CALLED = """called AS (
  INSERT INTO runs_modelcall (wait_id, step, content, epoch, claim)
  SELECT waited.id, %(call_step)s::jsonb, %(call_content)s::jsonb, %(epoch)s::int, %(claim)s::uuid FROM waited
  ON CONFLICT (wait_id) DO UPDATE SET step = excluded.step, content = excluded.content, epoch = excluded.epoch,
    claim = excluded.claim, owner_id = NULL, tries = 0, due_at = clock_timestamp(), error = ''
)"""

# A run that has so many keeps no more; the commit that reaches a bound is kept whole.
LINES_OF_A_RUN, BYTES_OF_A_RUN = 1_000, 131_072
LOGGED = """logged AS (
  INSERT INTO runs_runlog (run_id, epoch, number, count, size, dropped, content)
  SELECT run.id, %(log_epoch)s::int, %(log_number)s::int, %(log_count)s::int, %(log_size)s::int, %(log_dropped)s::int,
         %(log_content)s::jsonb
  FROM {run} AS run
  WHERE (SELECT coalesce(sum(kept.count) < {lines} AND sum(kept.size) < {bytes}, true) FROM runs_runlog kept WHERE kept.run_id = run.id)
  ON CONFLICT (run_id, epoch, number) DO NOTHING
)""".replace("{lines}", str(LINES_OF_A_RUN)).replace("{bytes}", str(BYTES_OF_A_RUN))


def log_parameters(log: LogChunk, epoch: int) -> dict[str, Any]:
    return {
        "log_epoch": epoch,
        "log_number": log.number,
        "log_count": log.count,
        "log_size": log.size,
        "log_dropped": log.dropped,
        "log_content": log.content,
    }


def step_parameters(entries: Sequence[StepEntry]) -> dict[str, Any]:
    return {
        "step_keys": [entry.key for entry in entries],
        "step_positions": [entry.position for entry in entries],
        "step_keyed": [entry.is_keyed for entry in entries],
        "step_effects": [entry.effect for entry in entries],
        "step_statuses": [entry.status for entry in entries],
        "step_attempts": [entry.attempts for entry in entries],
        "step_arguments": [_json(entry.arguments) for entry in entries],
        "step_outputs": [_json(entry.output) for entry in entries],
        "step_errors": [entry.error for entry in entries],
        "step_kinds": [entry.error_kind for entry in entries],
        "step_permanent": [entry.is_permanent for entry in entries],
        "step_took": [entry.took for entry in entries],
        "step_kind": [entry.kind for entry in entries],
        "step_usages": [_json(entry.usage) for entry in entries],
    }


def wait_parameters(wait: WaitEntry) -> dict[str, Any]:
    match_shape, match_hash = match_of(wait.match or {}, wait.event_source)
    parameters: dict[str, Any] = {
        "wait_key": wait.key,
        "wait_position": wait.position,
        "wait_keyed": wait.is_keyed,
        "wait_kind": wait.kind,
        "wait_until": wait.until,
        "wait_duration": wait.duration,
        "wait_event_type": wait.event_type,
        "wait_match": None if wait.match is None else Jsonb(wait.match),
        "wait_shape": match_shape,
        "wait_hash": match_hash,
        "wait_children": list(wait.children),
        "wait_event": wait.event_id,
        "wait_asked": None if wait.asked is None else Jsonb(wait.asked),
    }
    if approval := wait.approval:
        parameters |= {
            "approval_id": approval.id,
            "approval_question": approval.question,
            "approval_detail": approval.detail,
            "approval_arguments": None if approval.arguments is None else Jsonb(approval.arguments),
            "approval_digest": approval.digest,
            "approval_on_expiry": approval.on_expiry,
        }
    if call := wait.call:
        parameters |= {"call_step": Jsonb(call.step), "call_content": Jsonb(call.content)}
    return parameters


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value)
