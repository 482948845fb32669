"""A durable run's progress: write entries of its journal and effects of its steps, in one statement with the fence."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import DatabaseError, OperationalError, connection, transaction
from psycopg.errors import LockNotAvailable

from agents.journal.entries import StepEntry
from agents.kernel.effects import Effects
from agents.kernel.log_lines import LogChunk
from runs.attempt.effects import Rows, rows_of
from runs.claim import Claim
from runs.db.nudge import nudge_dispatcher
from runs.db.ready_runs import IS_STOPPED
from runs.db.session import writing
from runs.db.sql import execute, fetch
from runs.db.trip import one_trip, reach
from runs.exceptions import RunLost
from runs.models import Run, Step
from runs.states import RunStatus
from runs.transitions.entries import (
    ANSWERED,
    JOURNALED,
    LOGGED,
    WaitEntry,
    log_parameters,
    step_parameters,
    wait_parameters,
)
from runs.transitions.leave import (
    FENCED,
    NOTED,
    ON_ITS_TIMELINE,
    SENT,
    are_due_soon,
    effect_parameters,
    hanging,
    take_away,
)
from runs.transitions.lock import lock_run
from runs.transitions.outcome import back_in_line, ticket_of

# The first progress of a claim sets the attempts to 0, the first entry of a run sets `has_journal`, and one of them
# marks that it has seen untrusted data; otherwise the fence only locks the row. A leftover thread of the body still has
# the run's epoch when the run waits or has finished, so the fence checks the status as well, in a form that keeps the
# planner from the small partial index.
FIRST = """
WITH fenced AS (
  UPDATE runs_run SET attempt = CASE WHEN %(is_progress)s::boolean THEN 0 ELSE attempt END, has_journal = true,
    is_tainted = is_tainted OR %(is_tainted)s::boolean
  WHERE id = %(id)s::uuid AND epoch = %(epoch)s::int AND claim = %(claim)s::uuid AND coalesce(status, '') = 'running'
    {on_its_timeline}
  RETURNING id, agent, worker_id, cancel_requested_at
)""".replace("{on_its_timeline}", ON_ITS_TIMELINE)
FURTHER = """
WITH fenced AS MATERIALIZED (
  SELECT id, agent, worker_id, cancel_requested_at FROM runs_run
  WHERE id = %(id)s::uuid AND epoch = %(epoch)s::int AND claim = %(claim)s::uuid AND coalesce(status, '') = 'running'
    {on_its_timeline}
  FOR NO KEY UPDATE
)""".replace("{on_its_timeline}", ON_ITS_TIMELINE)
# Must this process release or cancel the run?
WANTED_BACK = """
SELECT cancel_requested_at IS NOT NULL OR EXISTS (
  SELECT FROM runs_worker worker WHERE worker.id = fenced.worker_id AND worker.draining_at IS NOT NULL) OR {is_stopped}
FROM fenced
""".replace("{is_stopped}", IS_STOPPED.format(agent="fenced.agent"))
OR_LOST = f"\nSELECT coalesce(({WANTED_BACK.strip()}), runs_fenced())"
# An intent is not written if the step will not be called.
UNLESS_WANTED_BACK = f"\nSELECT coalesce((SELECT false WHERE NOT ({WANTED_BACK.strip()})), runs_fenced())"  # noqa: S608
STILL_WANTED = f"""
WITH fenced AS (
  SELECT id, agent, worker_id, cancel_requested_at FROM runs_run
  WHERE id = %(id)s::uuid AND epoch = %(epoch)s::int AND claim = %(claim)s::uuid AND coalesce(status, '') = 'running'
){WANTED_BACK}"""  # noqa: S608  (our own parts)
FORGET_INTENT = """
WITH fenced AS MATERIALIZED (
  SELECT id FROM runs_run WHERE id = %(id)s::uuid AND epoch = %(epoch)s::int AND claim = %(claim)s::uuid FOR NO KEY UPDATE
)
DELETE FROM runs_step USING fenced WHERE run_id = fenced.id AND key = %(key)s::text AND status = 'started'
"""
# Only the claim that wrote the intent may record it: no later owner has called it again.
RECORD_LATE = """
WITH late AS (
  UPDATE runs_step SET status = 'done', output = %(output)s::jsonb, usage = coalesce(%(usage)s::jsonb, usage),
    ended_at = clock_timestamp()
  WHERE run_id = %(id)s::uuid AND key = %(key)s::text AND status = 'started' AND claim = %(claim)s::uuid
  RETURNING run_id AS id
)"""
RECORDED = "SELECT id FROM late"
LOCKED_AT_MOST = "100ms"
LATE_PATIENCE = 10.0  # seconds to retry while the database is away


def commit(
    claim: Claim,
    entries: Sequence[StepEntry],
    rows: Rows,
    *,
    at: str,
    answered: WaitEntry | None = None,
    log: LogChunk | None = None,
    is_first_progress: bool,
    has_journal: bool,
    is_newly_tainted: bool,
) -> bool:
    """Write entries, a wait that is over already, and effects as the last statement of a transaction, and
    commit it. Returns whether the run is to be released or cancelled.
    RunLost: another process owns the run, or it is to be released or cancelled and a step was to begin; roll back and stop."""
    parts = {JOURNALED: entries, LOGGED: log, ANSWERED: answered, SENT: rows.outbound, NOTED: rows.notices}
    parameters = {
        "id": claim.run_id,
        "epoch": claim.epoch,
        "claim": claim.id,
        "timeline": claim.timeline,
        "is_progress": is_first_progress,
        "is_tainted": is_newly_tainted,
        **(step_parameters(entries) if entries else {}),
        **(wait_parameters(answered) if answered else {}),
        **(log_parameters(log, claim.epoch) if log else {}),
        **effect_parameters(rows),
    }
    fence = FIRST if is_first_progress or not has_journal or is_newly_tainted else FURTHER
    is_intent = any(entry.status == "started" for entry in entries)
    statement = f"{fence}{hanging(parts, on='fenced')}{UNLESS_WANTED_BACK if is_intent else OR_LOST}"
    try:
        with one_trip() as trip:
            asked = trip.add(statement, parameters)
            reach(at, trip)
            if not connection.savepoint_ids:
                trip.add("COMMIT")
    except DatabaseError as error:
        if getattr(error.__cause__, "sqlstate", None) == FENCED:
            raise RunLost(f"run {claim.run_id} left epoch {claim.epoch}") from error
        raise
    if rows.notices or are_due_soon(rows.outbound):
        nudge_dispatcher()  # the body may still run for long
    [(is_wanted_back,)] = asked.rows()
    return bool(is_wanted_back)


def is_wanted_back(claim: Claim) -> bool:
    """Must the run stop here? RunLost: another process owns it."""
    found = fetch(STILL_WANTED, {"id": claim.run_id, "epoch": claim.epoch, "claim": claim.id})
    if not found:
        raise RunLost(f"run {claim.run_id} left epoch {claim.epoch}")
    return bool(found[0][0])


def forget_intent(claim: Claim, key: str) -> None:
    """Remove the intent of an at_most_once step that reported that it did not happen. RunLost: another process owns the
    run.
    """
    with writing():
        if not execute(FORGET_INTENT, {"id": claim.run_id, "epoch": claim.epoch, "claim": claim.id, "key": key}):
            raise RunLost(f"run {claim.run_id} left epoch {claim.epoch}")


def record_late(claim: Claim, key: str, output: str, effects: Effects, *, is_tainted: bool = False) -> None:
    """Record that an at_most_once step happened, with its effects, although its claim has lost the run or the database. A run
    that is parked over the step goes on."""
    _insist(claim.run_id, claim.id, key, output, lambda: rows_of(claim, effects), is_tainted=is_tainted)


def record_late_answer(run_id: UUID, claim_id: UUID, key: str, output: str, usage: Mapping[str, Any]) -> bool:
    """The same for a request to a model that a caller made, for the claim that left it. False: the run is locked now; its caller, whose
    other requests must not wait, tries again."""
    late = {"output": output, "id": run_id, "key": key, "claim": claim_id, "usage": json.dumps(usage)}
    try:
        with writing():
            execute("SELECT set_config('lock_timeout', %s, true)", [LOCKED_AT_MOST])
            run = lock_run(run_id)
            if _record_late(late, Rows):
                _unpark(run)
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            return False
        raise
    return True


def _insist(
    run_id: UUID,
    claim_id: UUID | None,
    key: str,
    output: str,
    make_rows: Callable[[], Rows],
    *,
    is_tainted: bool = False,
) -> None:
    late = {"output": output, "id": run_id, "key": key, "claim": claim_id, "usage": None}
    give_up_at = time.monotonic() + LATE_PATIENCE
    while True:
        try:
            with writing():
                run = lock_run(run_id)
                if _record_late(late, make_rows):
                    if is_tainted:
                        Run.objects.filter(pk=run.pk).update(is_tainted=True)
                    _unpark(run)
            return
        except DatabaseError:
            if time.monotonic() > give_up_at:
                raise
            connection.close()
            time.sleep(0.2)


def go_on_if_proved(claim: Claim, key: str) -> None:
    """Let a run go on that was parked over a step whose late outcome was recorded at the same moment."""
    with transaction.atomic():
        run = lock_run(claim.run_id)
        if run.steps.filter(key=key, status=Step.Status.DONE).exists():
            _unpark(run)


def _record_late(late: Mapping[str, Any], make_rows: Callable[[], Rows]) -> bool:
    with transaction.atomic():
        rows = make_rows()
        parts = {SENT: rows.outbound, NOTED: rows.notices}
        parameters = {**late, **effect_parameters(rows)}
        recorded = bool(fetch(f"{RECORD_LATE}{hanging(parts, on='late')}{RECORDED}", parameters))
        transaction.set_rollback(not recorded)  # undo the children as well
    return recorded


def _unpark(run: Run) -> None:
    if run.status != RunStatus.UNCERTAIN or run.steps.filter(status=Step.Status.STARTED).exists():
        return
    with transaction.atomic():
        outcome = back_in_line(run, "the outcome of its uncertain step was recorded late")
        take_away(ticket_of(run), outcome, expected=RunStatus.UNCERTAIN)
