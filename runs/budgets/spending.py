"""What was spent, for pages and metrics. Requests and their prices are read from the journals, amounts of caps from windows."""

from dataclasses import dataclass
from decimal import Decimal

from runs.db.sql import fetch_as

# Entries that a fork copied were paid by the run they came from. An answer that could not be recorded was paid as well.
TODAY = """
SELECT run.agent, run.trigger, coalesce(step.usage->>'model', '') AS model, count(*) AS requests,
  coalesce(sum((step.usage->>'input_tokens')::bigint), 0)::bigint AS input_tokens,
  coalesce(sum((step.usage->>'output_tokens')::bigint), 0)::bigint AS output_tokens,
  coalesce(sum((step.usage->>'cost')::numeric), 0) AS usd, count(*) FILTER (WHERE step.usage->>'cost' IS NULL) AS unpriced
FROM runs_step step JOIN runs_run run ON run.id = step.run_id
WHERE step.kind = 'model' AND step.kind IN ('model', 'tool') AND (step.status = 'done' OR step.usage IS NOT NULL)
  AND step.epoch > 0 AND step.ended_at >= date_trunc('day', clock_timestamp(), 'UTC')
GROUP BY run.agent, run.trigger, model ORDER BY usd DESC, run.agent, run.trigger, model
"""


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What requests of an agent's runs, started by a trigger, used of a model since midnight UTC."""

    agent: str
    trigger: str
    model: str
    requests: int
    input_tokens: int
    output_tokens: int
    usd: Decimal
    unpriced: int


def spent_today() -> list[Spent]:
    return fetch_as(Spent, TODAY)
