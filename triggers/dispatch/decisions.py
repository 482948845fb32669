"""Write the decisions of a batch, and mark its events and redispatches as dispatched."""

from collections.abc import Sequence
from uuid import UUID

from django.db import transaction

from agents import telemetry
from runs.db.sql import Query, execute_many
from runs.queues import entrance
from runs.transitions.reports import Asked, Unstarted, report_unstarted
from triggers.dispatch import rates, windows
from triggers.dispatch.admission import Ledger
from triggers.dispatch.spans import tell_of_dispatch
from triggers.matching.matches import Refusal
from triggers.matching.pending import Item
from triggers.models import Decision, Trigger

# An event that was held for days and then ends in an error gets the current time.
DECIDE = """
INSERT INTO triggers_decision (event_id, trigger_id, replay_id, outcome, reason, run_id)
VALUES (%s::uuid, %s::uuid, %s::uuid, %s::text, %s::text, %s::uuid)
ON CONFLICT (event_id, trigger_id, replay_id) DO UPDATE
  SET outcome = excluded.outcome, reason = excluded.reason, run_id = excluded.run_id, created_at = excluded.created_at
  WHERE triggers_decision.outcome IN ('held', 'collected', 'error')
"""
COLLECTED_INTO = """
UPDATE triggers_decision SET run_id = %s::uuid
WHERE event_id = ANY(%s::uuid[]) AND trigger_id = %s::uuid AND replay_id = %s::uuid AND outcome = 'collected'
"""
# The array in a sub-SELECT: one plan for any number of events, which would be made at each execution otherwise.
MARK_EVENTS = "UPDATE triggers_event SET dispatched_at = clock_timestamp() WHERE id = ANY((SELECT %s::uuid[])::uuid[])"
MARK_REDISPATCHES = "UPDATE triggers_redispatch SET dispatched_at = clock_timestamp() WHERE id = ANY(%s::bigint[])"
RESUMED = """
UPDATE triggers_decision SET outcome = 'resumed', run_id = %s::uuid
WHERE event_id = %s::uuid AND trigger_id = %s::uuid AND replay_id = %s::uuid AND outcome IN ('held', 'error')
"""
# The edited trigger no longer matches the held event; an event that does not match has no decision.
FORGET_HELD = """
DELETE FROM triggers_decision
WHERE event_id = %s::uuid AND trigger_id = %s::uuid AND replay_id = %s::uuid AND outcome IN ('held', 'error')
"""
# The others are no answer: a run has taken the event along, or may come of it later.
NO_RUN = frozenset(
    {
        Decision.Outcome.OVERLAP,
        Decision.Outcome.RATE,
        Decision.Outcome.DISABLED,
        Decision.Outcome.LOOP,
        Decision.Outcome.ERROR,
    }
)
Resumed = tuple[UUID, UUID, UUID, UUID]  # run, event, trigger, replay


def write_decisions(ledger: Ledger, free_queue: str | None = None) -> list[Query]:
    """Write the decisions of admission. Returns what is left to execute, at any time before the commit. `free_queue`: one in which no run
    was ready."""
    left = entrance.write(ledger.new, ledger.unstarted.values(), ledger.replacing, free_queue)
    record(ledger.refused)
    rates.write(ledger.uses, ledger.now)
    windows.write(ledger.windows.values(), [window for window, _ in ledger.closed])
    trace_collected(ledger)
    return left


def trace_collected(ledger: Ledger) -> None:
    """Record the run in the decision of each event that a window collected."""
    rows = [
        (run_id, window.event_ids, window.trigger_id, window.replay_id) for window, run_id in ledger.closed if run_id
    ]
    if rows:
        execute_many(COLLECTED_INTO, rows)


def give_up_on(
    event_ids: Sequence[UUID], trigger_id: UUID, replay_id: UUID, error: Exception, reports: Asked = ()
) -> Refusal:
    return Refusal(
        event_ids=event_ids,
        trigger_id=trigger_id,
        replay_id=replay_id,
        outcome=Decision.Outcome.ERROR,
        reason=repr(error)[:2000],
        reports=reports,
    )


def record(refusals: Sequence[Refusal]) -> None:
    if refusals:
        execute_many(
            DECIDE,
            [(id, r.trigger_id, r.replay_id, r.outcome, r.reason, r.run_id) for r in refusals for id in r.event_ids],
        )
    for refusal in refusals:
        if refusal.reports and refusal.outcome in NO_RUN:
            report_no_run(refusal)


def report_no_run(refusal: Refusal) -> None:
    """Report to the people who fired the trigger that no run comes of it."""
    trigger = Trigger.objects.filter(pk=refusal.trigger_id).values_list("slug", "agent").first()
    slug, agent = trigger or ("", "")
    event_id = refusal.event_ids[-1]
    reason = f"{refusal.outcome}: {refusal.reason}"
    report_unstarted(
        Unstarted(
            reports=refusal.reports, agent=agent, trigger=slug, event_id=event_id, root_id=event_id, reason=reason
        )
    )


def mark_resumed(items: Sequence[Item], ledger: Ledger, made_before: Sequence[Resumed]) -> None:
    resumed = {item.event_id for item in items if item.is_resumption}
    rows = [
        (run.id, run.event_ids[0], run.trigger_id, run.replay_id) for run in ledger.new if run.event_ids[0] in resumed
    ]
    if rows or made_before:
        execute_many(RESUMED, [*rows, *made_before])


def forget_held(unwanted: Sequence[Item]) -> None:
    rows = [(item.event_id, item.trigger_id, item.replay_id) for item in unwanted if item.trigger_id is not None]
    if rows:
        execute_many(FORGET_HELD, rows)


def marks(items: Sequence[Item]) -> list[Query]:
    """The statements that mark these events and redispatches as dispatched."""
    events = [item.event_id for item in items if item.redispatch_id is None]
    redispatches = [item.redispatch_id for item in items if item.redispatch_id is not None]
    if events and telemetry.is_on():
        transaction.on_commit(lambda: tell_of_dispatch(events), robust=True)
    return [
        *([(MARK_EVENTS, [events])] if events else []),
        *([(MARK_REDISPATCHES, [redispatches])] if redispatches else []),
    ]
