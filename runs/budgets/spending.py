"""Spent budget, for pages and metrics. Requests and their prices are read from the journals, amounts of caps from
windows.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from runs.db.sql import fetch_as

# Entries that a fork copied were paid by the run they came from. An answer that could not be recorded was paid as well.
PAID = """
SELECT run_id, usage, ended_at FROM runs_step
WHERE kind = 'model' AND kind IN ('model', 'tool') AND (status = 'done' OR usage IS NOT NULL) AND epoch > 0
"""
SPENT = """
SELECT run.agent, run.trigger, coalesce(step.usage->>'model', '') AS model, count(*) AS requests,
  coalesce(sum((step.usage->>'input_tokens')::bigint), 0)::bigint AS input_tokens,
  coalesce(sum((step.usage->>'output_tokens')::bigint), 0)::bigint AS output_tokens,
  coalesce(sum((step.usage->>'cost')::numeric), 0) AS usd, count(*) FILTER (WHERE step.usage->>'cost' IS NULL) AS unpriced
FROM ({steps}) step {run}
GROUP BY run.agent, run.trigger, model ORDER BY usd DESC, run.agent, run.trigger, model
"""
RUN = "JOIN runs_run run ON run.id = step.run_id"
# Each request costs one look-up of a primary key, however large the table of runs is.
RUN_OF_EACH = "CROSS JOIN LATERAL (SELECT agent, trigger FROM runs_run WHERE id = step.run_id OFFSET 0) run"
TODAY = SPENT.format(run=RUN, steps=f"{PAID} AND ended_at >= date_trunc('day', clock_timestamp(), 'UTC')")
BETWEEN = SPENT.format(
    run=RUN_OF_EACH,
    steps=f"{PAID} AND ended_at >= %(start)s::timestamptz AND ended_at < %(end)s::timestamptz ORDER BY ended_at DESC LIMIT %(most)s::int",
)


@dataclass(frozen=True, kw_only=True)
class Spent:
    """The usage of one model by runs of one agent and trigger."""

    agent: str
    trigger: str
    model: str
    requests: int
    input_tokens: int
    output_tokens: int
    usd: Decimal
    unpriced: int


def spent_today() -> list[Spent]:
    """The usage since midnight UTC."""
    return fetch_as(Spent, TODAY)


def spent_between(start: datetime, end: datetime, most: int) -> list[Spent]:
    """The usage of the last `most` requests that ended in this time."""
    return fetch_as(Spent, BETWEEN, {"start": start, "end": end, "most": most})
