"""The rows of requests that runs left to callers: when to leave one, take, answer, postpone, hand back.

A caller owns a row while its own row in `runs_worker` is open and fresh. What it commits for a request is fenced: the row still has it
as its owner, the wait is open and the run waits. Locks are taken in one order: run, row of the request, wait.

A request that may be made only once (`at_most_once`) has the intent of its step committed when it is taken. It has one owner: where that
is lost, or lets it go, its wait ends, and the run is parked over the step. A try that was certainly not worked on takes its intent back,
and is no attempt of the step: a second attempt is a fault, which `verify` names.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog
from django.db import transaction

from runs import waits
from runs.db.ready_runs import IS_READY, IS_STOPPED
from runs.db.sql import execute, fetch, fetch_as, fetch_column
from runs.failpoints import failpoint
from runs.processes.alive import IS_ALIVE
from runs.processes.lease import patience

log = structlog.get_logger(__name__)
_leaves = True  # this process has found a caller when it asked last

ALIVE = f"""EXISTS (SELECT FROM runs_worker worker WHERE worker.kind = 'caller' AND worker.draining_at IS NULL AND {IS_ALIVE})"""  # noqa: S608
# Does a caller live? And does another run need this process? Where an operator limits how many runs of a queue run at once, a request
# that is left would not count.
IS_BETTER_LEFT = f"""
SELECT {ALIVE},
  (EXISTS (SELECT FROM runs_run run WHERE {IS_READY} AND run.queue = mine.queue) OR EXISTS (SELECT FROM runs_modelcall))
  AND NOT EXISTS (SELECT FROM runs_queue WHERE name = mine.queue AND max_running IS NOT NULL)
FROM runs_run mine WHERE mine.id = %(run)s::uuid
"""  # noqa: S608  (our own parts)
# From the request to its wait to its run, each found by its key, whatever the planner believes: it would join all open waits with all
# waiting runs. `coalesce` keeps it from their partial indexes.
OF_OPEN_WAIT = """CROSS JOIN LATERAL (
    SELECT run_id FROM runs_wait WHERE id = call.wait_id AND coalesce(status, '') = 'open' OFFSET 0) wait"""
OF_LIVE_WAIT = f"""{OF_OPEN_WAIT} CROSS JOIN LATERAL (
    SELECT id, agent, trigger FROM runs_run WHERE id = wait.run_id AND coalesce(status, '') = 'waiting' OFFSET 0) run"""  # noqa: S608
IS_ONCE = "step->>'effect' = 'at_most_once'"
# A caller of a version without intents frees a request that has begun: it is left to the dispatcher, which ends its wait.
TAKE = (
    """
WITH free AS (
  SELECT call.wait_id, run.id AS run_id, run.agent, run.trigger
  FROM runs_modelcall call {of_live_wait}
  WHERE call.owner_id IS NULL AND call.due_at <= (SELECT clock_timestamp()) AND NOT {is_stopped}
    AND EXISTS (SELECT FROM runs_worker WHERE id = %(me)s::uuid AND stopped_at IS NULL)
    AND NOT ({is_once} AND EXISTS (SELECT FROM runs_step WHERE run_id = run.id AND key = step->>'key' AND status = 'started'))
  ORDER BY call.due_at LIMIT %(most)s::int FOR UPDATE OF call SKIP LOCKED
), taken AS (
  UPDATE runs_modelcall call SET owner_id = %(me)s::uuid, tries = call.tries + 1 FROM free
  WHERE call.wait_id = free.wait_id
  RETURNING call.wait_id, free.run_id, free.agent, free.trigger, call.epoch, call.claim AS id, call.tries, call.step->>'key' AS key,
    call.content, call.step
), begun AS (
  INSERT INTO runs_step (run_id, key, position, is_keyed, effect, status, epoch, claim, attempts, arguments, error, error_kind,
                         is_permanent, kind)
  SELECT run_id, key, (step->>'position')::int, (step->>'is_keyed')::boolean, 'at_most_once', 'started', epoch, id, 1,
         step->'arguments', '', '', false, 'model'
  FROM taken WHERE {is_once}
  ON CONFLICT (run_id, key) DO UPDATE SET effect = excluded.effect, status = excluded.status, epoch = excluded.epoch,
    claim = excluded.claim, error = '', error_kind = '', ended_at = NULL,
    attempts = CASE WHEN runs_step.status = 'started' THEN runs_step.attempts + 1 ELSE 1 END
  WHERE runs_step.status <> 'done'
)
SELECT wait_id, run_id, agent, trigger, epoch, id, tries, key, content, {is_once} AS is_once FROM taken
""".replace("{is_once}", IS_ONCE)
    .replace("{of_live_wait}", OF_LIVE_WAIT)
    .replace("{is_stopped}", IS_STOPPED.format(agent="run.agent"))
)
FIRST_DUE = """
SELECT EXISTS (SELECT FROM runs_modelcall),
  extract(epoch FROM (SELECT min(due_at) FROM runs_modelcall WHERE owner_id IS NULL) - clock_timestamp())::float8
"""
# The requests of a caller that are still wanted: their runs wait for them, and their agents are not stopped.
WANTED = f"""
SELECT call.wait_id FROM runs_modelcall call {OF_LIVE_WAIT}
WHERE call.owner_id = %(me)s::uuid AND NOT {IS_STOPPED.format(agent="run.agent")}
"""  # noqa: S608
LOCK = f"""
SELECT call.wait_id FROM runs_modelcall call {OF_OPEN_WAIT}
  JOIN runs_run run ON run.id = wait.run_id AND coalesce(run.status, '') = 'waiting'
WHERE call.wait_id = ANY(%(ids)s::bigint[]) AND call.owner_id = %(me)s::uuid
ORDER BY run.id FOR NO KEY UPDATE OF run, call SKIP LOCKED
"""  # noqa: S608
ANSWER = """
INSERT INTO runs_step (run_id, key, position, is_keyed, effect, status, epoch, claim, attempts, arguments, output, error,
                       error_kind, is_permanent, kind, usage, started_at, ended_at)
SELECT wait.run_id, call.step->>'key', (call.step->>'position')::int, (call.step->>'is_keyed')::boolean,
       coalesce(given.effect, call.step->>'effect'), CASE WHEN given.error = '' THEN 'done' ELSE 'failed' END, call.epoch, call.claim,
       call.tries, call.step->'arguments', given.output, given.error, given.error_kind, given.error <> '', 'model', given.usage,
       clock_timestamp() - make_interval(secs => given.took), clock_timestamp()
FROM unnest(%(ids)s::bigint[], %(outputs)s::text[]::jsonb[], %(usages)s::text[]::jsonb[], %(tooks)s::float8[], %(errors)s::text[],
            %(error_kinds)s::text[], %(effects)s::text[]) AS given(wait_id, output, usage, took, error, error_kind, effect)
JOIN runs_modelcall call ON call.wait_id = given.wait_id JOIN runs_wait wait ON wait.id = given.wait_id
ON CONFLICT (run_id, key) DO UPDATE SET
  position = excluded.position, effect = excluded.effect, status = excluded.status, epoch = excluded.epoch, claim = excluded.claim,
  attempts = CASE WHEN runs_step.status = 'started' THEN runs_step.attempts ELSE excluded.attempts END,
  arguments = coalesce(excluded.arguments, runs_step.arguments), output = excluded.output, error = excluded.error,
  error_kind = excluded.error_kind, is_permanent = excluded.is_permanent, usage = excluded.usage, ended_at = excluded.ended_at
WHERE runs_step.status <> 'done'
"""
GONE = "DELETE FROM runs_modelcall WHERE wait_id = ANY(%s::bigint[])"
# The intents of requests that were certainly not worked on.
FORGET = """
DELETE FROM runs_step step USING runs_modelcall call, runs_wait wait
WHERE call.wait_id = ANY(%(ids)s::bigint[]) AND call.owner_id = %(me)s::uuid AND wait.id = call.wait_id
  AND step.run_id = wait.run_id AND step.key = call.step->>'key' AND step.status = 'started' AND step.claim = call.claim
"""
POSTPONE = """
UPDATE runs_modelcall SET owner_id = NULL, due_at = clock_timestamp() + %(pause)s::interval, error = %(error)s::text
WHERE wait_id = %(id)s::bigint AND owner_id = %(me)s::uuid
"""
# Those of a caller that it does not make.
NOT_MADE = "SELECT wait_id FROM runs_modelcall WHERE owner_id = %(me)s::uuid AND NOT wait_id = ANY(%(made)s::bigint[])"
UNTAKE = "UPDATE runs_modelcall SET owner_id = NULL, due_at = clock_timestamp() WHERE wait_id = ANY(%s::bigint[])"
# Another process may make them: nothing of theirs was sent, or it counts as one request more.
LET_GO = f"""
UPDATE runs_modelcall SET owner_id = NULL, due_at = clock_timestamp()
WHERE owner_id = %(me)s::uuid AND wait_id = ANY(%(ids)s::bigint[]) AND NOT {IS_ONCE}
"""  # noqa: S608
# They may have been paid: the dispatcher books what was reserved for them as spent at its next look.
NO_LONGER_RESERVED = """
UPDATE runs_reservation reservation SET expires_at = clock_timestamp()
FROM runs_modelcall call JOIN runs_wait wait ON wait.id = call.wait_id
WHERE call.owner_id = %(me)s::uuid AND call.wait_id = ANY(%(ids)s::bigint[])
  AND reservation.run_id = wait.run_id AND reservation.claim = call.claim AND reservation.expires_at > clock_timestamp()
"""
# The dispatcher closes the row of a caller that is unseen, and knows when callers could not renew.
HAS_OWNER = "EXISTS (SELECT FROM runs_worker worker WHERE worker.id = call.owner_id AND worker.stopped_at IS NULL)"
LOST = f"call.owner_id IS NOT NULL AND NOT {HAS_OWNER}"
FREE_LOST = f"UPDATE runs_modelcall call SET owner_id = NULL, due_at = clock_timestamp() WHERE {LOST} AND NOT {IS_ONCE}"  # noqa: S608
REMOVE_LOST = f"DELETE FROM runs_modelcall call WHERE {LOST} AND {IS_ONCE}"  # noqa: S608
UNWANTED = """
DELETE FROM runs_modelcall call USING runs_wait wait WHERE wait.id = call.wait_id AND wait.status <> 'open'
"""
OWNED = f"""
SELECT call.wait_id FROM runs_modelcall call {OF_LIVE_WAIT}
WHERE call.wait_id = ANY(%(ids)s::bigint[]) AND call.owner_id = %(me)s::uuid
"""  # noqa: S608
# Requests that no process makes: none whose row is open owns them, and no caller is there to take them, or none has for a lease. Once
# they are removed, none can. Not within one lease of the start of the server, as above.
UNTAKEN = f"""
DELETE FROM runs_modelcall call
WHERE created_at < clock_timestamp() - %(lease)s::interval AND clock_timestamp() > pg_postmaster_start_time() + %(lease)s::interval
  AND CASE WHEN owner_id IS NULL THEN NOT {ALIVE} OR due_at < clock_timestamp() - %(lease)s::interval
    ELSE NOT {ALIVE} AND NOT {HAS_OWNER} END
"""  # noqa: S608
ABANDONED = """
SELECT id FROM runs_wait WHERE status = 'open' AND kind = 'model'
  AND NOT EXISTS (SELECT FROM runs_modelcall call WHERE call.wait_id = runs_wait.id)
ORDER BY id LIMIT 1000
"""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request that a caller has taken. `id`: the identity of the claim that left it."""

    wait_id: int
    run_id: UUID
    agent: str
    trigger: str
    epoch: int
    id: UUID
    tries: int
    key: str
    content: str  # JSON
    is_once: bool


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a request came to: the output of its step and its usage, or the error for which it is never made again."""

    wait_id: int
    took: float
    usage: Mapping[str, Any]
    output: str | None = None  # JSON
    error: str = ""
    error_kind: str = ""


def is_better_left(run_id: UUID) -> bool:
    """Does another run need this process, now or once its own request is answered, and does a caller live that makes this one?"""
    for has_caller, is_needed in fetch(IS_BETTER_LEFT, {"run": run_id, **patience()}):
        if is_needed:
            _note(has_caller=has_caller)
        return bool(has_caller and is_needed)
    return False


def _note(*, has_caller: bool) -> None:
    """Log when runs of this process begin to make their requests themselves for want of a caller, and when they leave them again."""
    global _leaves
    if has_caller != _leaves:
        _leaves = has_caller
        if has_caller:
            log.info("caller.back")
        else:
            log.warning(
                "caller.missing",
                effect="runs make their requests to models in their workers, one at a time in each child",
            )


def take(me: UUID, most: int) -> list[Call]:
    found = fetch_as(Call, TAKE, {"me": me, "most": most})
    failpoint("after_call_taken")
    return found


def first_due() -> tuple[bool, float | None]:
    """Are there any requests? And the seconds until the first free one may be taken; None: none is free."""
    [(has_some, seconds)] = fetch(FIRST_DUE)
    return bool(has_some), None if seconds is None else float(seconds)


def owned(me: UUID, wait_ids: Sequence[int]) -> set[int]:
    """Those of these that still are this caller's: what it has to record for them waits for the lock of a run."""
    return set(fetch_column(OWNED, {"ids": list(wait_ids), "me": me})) if wait_ids else set()


def wanted(me: UUID) -> set[int]:
    return set(fetch_column(WANTED, {"me": me}))


def answer(me: UUID, outcomes: Sequence[Outcome]) -> set[int]:
    """Record outcomes as steps and wake their runs, in one transaction. Returns those that were recorded: the others are late, for
    another process owns them or their runs no longer wait, or their runs are locked now."""
    failpoint("before_answer")
    with transaction.atomic():
        held = _lock(me, [outcome.wait_id for outcome in outcomes])
        recorded = [outcome for outcome in outcomes if outcome.wait_id in held]
        if recorded:
            execute(ANSWER, _columns(recorded))
            _end(held)
        failpoint("before_answer_commit")
    failpoint("after_answer_commit")
    return held


def hand_back(me: UUID, wait_ids: Sequence[int], unmade: Sequence[int] = ()) -> set[int]:
    """End waits without an answer: their runs make the requests themselves, or are parked over those that may be made only once and
    are not among the `unmade`. Returns those that were still this caller's."""
    with transaction.atomic():
        held = _lock(me, wait_ids)
        execute(FORGET, {"me": me, "ids": sorted(held.intersection(unmade))})
        _end(held)
    return held


def postpone(me: UUID, wait_id: int, seconds: float, error: str) -> bool:
    """Free a request that was certainly not worked on, or may be made again; False: it is late, or its run is locked now."""
    pause = timedelta(seconds=seconds)
    with transaction.atomic():
        if not _lock(me, [wait_id]):
            return False
        execute(FORGET, {"me": me, "ids": [wait_id]})
        return execute(POSTPONE, {"me": me, "id": wait_id, "pause": pause, "error": error[:1000]}) == 1


def let_go(me: UUID, wait_ids: Sequence[int]) -> None:
    """Leave requests to another process; those that may be made only once, to a person."""
    # While they are this caller's: the next one reserves for the same claim.
    execute(NO_LONGER_RESERVED, {"me": me, "ids": list(wait_ids)})
    execute(LET_GO, {"me": me, "ids": list(wait_ids)})
    hand_back(me, wait_ids)


def untake(me: UUID, made: Sequence[int]) -> None:
    """Free requests of this caller that it does not make: its session ended after it had taken them and before it knew. Nothing was
    sent."""
    with transaction.atomic():
        held = sorted(_lock(me, fetch_column(NOT_MADE, {"me": me, "made": list(made)})))
        if held:
            execute(FORGET, {"me": me, "ids": held})
            execute(UNTAKE, [held])


def tidy() -> None:
    """Free requests of callers that are gone, and remove those whose runs no longer wait. Runs are parked over those that may be made
    only once."""
    execute(FREE_LOST)
    if execute(REMOVE_LOST):
        _end_abandoned()
    execute(UNWANTED)


def hand_back_abandoned() -> int:
    """End the waits for requests that no caller makes: their runs leave them once more, or make them themselves. Returns how many."""
    execute(UNWANTED)
    execute(UNTAKEN, patience())
    ended = _end_abandoned()
    if ended:
        log.warning("calls.untaken", requests=ended)
    return ended


def _end_abandoned() -> int:
    abandoned = fetch_column(ABANDONED)
    return waits.expire_unless_locked(abandoned) if abandoned else 0


def _lock(me: UUID, wait_ids: Sequence[int]) -> set[int]:
    return set(fetch_column(LOCK, {"ids": list(wait_ids), "me": me}))


def _end(wait_ids: set[int]) -> None:
    if wait_ids:
        waits.end_these(sorted(wait_ids))
        execute(GONE, [sorted(wait_ids)])


def _columns(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "ids": [outcome.wait_id for outcome in outcomes],
        "outputs": [outcome.output for outcome in outcomes],
        "usages": [json.dumps(outcome.usage) for outcome in outcomes],
        "tooks": [outcome.took for outcome in outcomes],
        "errors": [outcome.error for outcome in outcomes],
        "error_kinds": [outcome.error_kind for outcome in outcomes],
        # Paid and lost: only a person has it made once more.
        "effects": ["at_most_once" if outcome.error else None for outcome in outcomes],
    }
