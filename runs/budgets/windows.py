"""Find, create and lock the windows of a run's budgets. Windows are locked in the order of their ids."""

from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal
from uuid import UUID

from runs.budgets.room import Cap
from runs.db.sql import execute, fetch_as
from runs.models import NIL

# The trigger whose budgets a run spends: its own, or, of a spawned run, that of the run with which the spawning began.
SPENDS_FOR = """CASE WHEN run.trigger <> '' OR run.parent_id IS NULL THEN run.trigger ELSE (
  WITH RECURSIVE line AS (
    SELECT run.parent_id, ''::text AS trigger
    UNION ALL
    SELECT parent.parent_id, parent.trigger FROM line JOIN runs_run parent ON parent.id = line.parent_id WHERE line.trigger = ''
  ) SELECT max(trigger) FROM line) END"""
# `{which}` selects the budgets, `{run}` the run whose per-run windows are meant.
CAPS = """
SELECT budget.id AS budget, budget.scope, budget.name, budget.period, budget.measure, budget.cap, budget.at_cap,
  turn.run_id, turn.starts_at,
  CASE WHEN budget.period <> 'run' THEN turn.starts_at + ('1 ' || budget.period)::interval END AS ends_at,
  win.id, coalesce(win.spent, 0) AS spent, coalesce(win.reserved, 0) AS reserved, coalesce(win.extra, 0) AS extra
FROM runs_budget budget
CROSS JOIN LATERAL (SELECT
  CASE budget.period WHEN 'run' THEN timestamptz 'epoch' ELSE date_trunc(budget.period, clock_timestamp(), 'UTC') END AS starts_at,
  CASE budget.period WHEN 'run' THEN %(run)s::uuid ELSE %(nil)s::uuid END AS run_id) turn
LEFT JOIN runs_budgetwindow win
  ON win.budget_id = budget.id AND win.run_id = turn.run_id AND win.starts_at = turn.starts_at
WHERE budget.cap IS NOT NULL AND {which}
ORDER BY budget.id
"""
OF_RUN = """budget.measure = ANY(%(measures)s::text[]) AND (budget.scope = 'installation'
  OR (budget.scope = 'agent' AND budget.name = %(agent)s::text) OR (budget.scope = 'trigger' AND budget.name = %(trigger)s::text))"""
CAPS_OF_RUN = CAPS.replace("{which}", OF_RUN)
CAPS_OF_BUDGETS = CAPS.replace("{which}", "budget.id = ANY(%(budgets)s::bigint[])")
# A cap that is set in the middle of its window counts earlier usage from the journals, also of answers that could not
# be recorded. What pydantic-ai does around tools, such as asking a server for its list, has no arguments, and is no
# call of a tool. A budget that is being deleted gets no window.
MAKE = """
INSERT INTO runs_budgetwindow (budget_id, run_id, starts_at, ends_at, spent, reserved, extra)
SELECT budget.id, %(run)s::uuid, %(starts)s::timestamptz, %(ends)s::timestamptz, used.amount, 0, 0
FROM runs_budget budget
CROSS JOIN LATERAL (
  SELECT coalesce(sum(CASE budget.measure
    WHEN 'usd' THEN (step.usage->>'cost')::numeric
    WHEN 'tokens' THEN (step.usage->>'input_tokens')::numeric + (step.usage->>'output_tokens')::numeric
    WHEN 'requests' THEN (step.kind = 'model')::int
    ELSE (step.kind = 'tool' AND step.arguments IS DISTINCT FROM '[]'::jsonb)::int END), 0) AS amount
  FROM runs_step step JOIN runs_run run ON run.id = step.run_id
  WHERE step.kind IN ('model', 'tool') AND (step.status = 'done' OR step.usage IS NOT NULL OR step.kind = 'tool')
    AND step.epoch > 0 AND {used}) used
WHERE budget.id = %(budget)s::bigint
FOR KEY SHARE OF budget
ON CONFLICT DO NOTHING
"""
MAKE_OF_RUN = MAKE.replace("{used}", "step.run_id = %(run)s::uuid")
MAKE_OF_TIME = MAKE.replace(
    "{used}",
    """budget.counts_since > %(starts)s::timestamptz AND step.ended_at >= %(starts)s::timestamptz
    AND (budget.scope = 'installation' OR (budget.scope = 'agent' AND run.agent = budget.name)
      OR (budget.scope = 'trigger' AND budget.name = {spends_for}))""".replace("{spends_for}", SPENDS_FOR),
)
LOCK = """
SELECT id FROM runs_budgetwindow WHERE id = ANY(%s::bigint[]) ORDER BY id FOR NO KEY UPDATE
"""
SPEND = """
UPDATE runs_budgetwindow win SET spent = win.spent + used.amount
FROM unnest(%s::bigint[], %s::numeric[]) AS used(window_id, amount) WHERE win.id = used.window_id
"""
LOCK_OF_BUDGETS = """
SELECT id FROM runs_budgetwindow WHERE budget_id = ANY(%s::bigint[]) ORDER BY id FOR NO KEY UPDATE
"""


def caps_of_run(run_id: UUID, agent: str, trigger: str, measures: Collection[str]) -> list[Cap]:
    """The budgets that apply to a run, each with its window now, where it has been made."""
    given = {"run": run_id, "nil": NIL, "agent": agent, "trigger": trigger, "measures": sorted(measures)}
    return fetch_as(Cap, CAPS_OF_RUN, given)


def cap_of_budget(budget: int, run_id: UUID | None = None) -> Cap | None:
    """None: there is no such budget, or it has no cap."""
    found = fetch_as(Cap, CAPS_OF_BUDGETS, {"run": run_id or NIL, "nil": NIL, "budgets": [budget]})
    return found[0] if found else None


def current() -> dict[int, Cap]:
    """The window of each budget now, by the budget's id. Those without a cap have none."""
    return {cap.budget: cap for cap in fetch_as(Cap, CAPS.replace("{which}", "true"), {"run": NIL, "nil": NIL})}


def lock(windows: Iterable[int]) -> None:
    """Lock the windows until the transaction ends. Values read before may have changed meanwhile."""
    execute(LOCK, [sorted(set(windows))])


def lock_of_budgets(budgets: Collection[int]) -> None:
    """Lock the windows of budgets before deletion: a step that is being settled locks its windows before its
    reservations.
    """
    execute(LOCK_OF_BUDGETS, [sorted(budgets)])


def make(missing: Sequence[Cap]) -> None:
    """Make the windows of these; another session may make them at the same time."""
    for cap in missing:
        made = MAKE_OF_RUN if cap.period == "run" else MAKE_OF_TIME
        execute(made, {"budget": cap.budget, "run": cap.run_id, "starts": cap.starts_at, "ends": cap.ends_at})


def spend(used: Sequence[tuple[int, Decimal]]) -> None:
    """Book usage without a reservation in these windows. Lock them first."""
    execute(SPEND, [[window for window, _ in used], [amount for _, amount in used]])
