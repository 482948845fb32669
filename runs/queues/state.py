"""The state of each queue: its waiting and running runs, the workers that serve it, and the operator's settings."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings

from runs.db.ready_runs import IS_READY, IS_STOPPED, ORDER
from runs.db.sql import fetch_column
from runs.exceptions import UnknownQueue
from runs.processes.alive import SERVES
from runs.processes.lease import patience

SAMPLE = 1_000  # most runs of an agent that are read, from the head of a queue

# A queue exists if a setting, an operator, a live worker or a run names it. The first runs of each agent are read.
QUEUES = f"""
WITH RECURSIVE waiting(queue, agent) AS (
  (SELECT queue, agent FROM runs_run WHERE status = 'queued' AND ready_at IS NOT NULL ORDER BY queue, agent LIMIT 1)
  UNION ALL
  SELECT next.queue, next.agent FROM waiting CROSS JOIN LATERAL (
    SELECT run.queue, run.agent FROM runs_run run
    WHERE {IS_READY} AND (run.queue, run.agent) > (waiting.queue, waiting.agent) ORDER BY run.queue, run.agent LIMIT 1) next
), serving AS (
  SELECT unnest(worker.queues) AS queue, worker.concurrency, worker.agents FROM runs_worker worker WHERE {SERVES}
), running AS (
  SELECT queue, count(*) AS runs FROM runs_run WHERE status = 'running' GROUP BY queue
), names AS (
  SELECT unnest(%(known)s::text[]) AS name UNION SELECT '*' UNION SELECT name FROM runs_queue
  UNION SELECT queue FROM waiting UNION SELECT queue FROM serving UNION SELECT queue FROM running
)
SELECT names.name, settings.max_running, settings.paused_at,
  extract(epoch FROM clock_timestamp() - settings.paused_at)::float8 AS paused_seconds,
  coalesce(settings.paused_reason, '') AS paused_reason, coalesce(settings.paused_by, '') AS paused_by,
  coalesce(running.runs, 0) AS running, head.ready, head.oldest_seconds, head.homeless, head.homeless_seconds,
  head.homeless_agents, (SELECT coalesce(sum(concurrency), 0) FROM serving WHERE queue = names.name) AS children
FROM names LEFT JOIN runs_queue settings ON settings.name = names.name LEFT JOIN running ON running.queue = names.name
CROSS JOIN LATERAL (
  SELECT least(count(*), %(sample)s::int) AS ready, coalesce(max(age), 0) AS oldest_seconds,
    least(count(*) FILTER (WHERE homeless), %(sample)s::int) AS homeless, coalesce(max(age) FILTER (WHERE homeless), 0) AS homeless_seconds,
    coalesce(array_agg(DISTINCT agent) FILTER (WHERE homeless), '{{}}') AS homeless_agents
  FROM (
    SELECT run.agent, extract(epoch FROM clock_timestamp() - run.ready_at)::float8 AS age,
      NOT EXISTS (SELECT FROM serving WHERE serving.queue = run.queue AND run.agent = ANY(serving.agents)) AS homeless
    FROM waiting CROSS JOIN LATERAL (
      SELECT run.queue, run.agent, run.ready_at FROM runs_run run
      WHERE {IS_READY} AND run.queue = waiting.queue AND run.agent = waiting.agent
      ORDER BY {ORDER} LIMIT %(sample)s::int) run
    WHERE waiting.queue = names.name AND NOT {IS_STOPPED.format(agent="waiting.agent")}) first
) head
ORDER BY names.name
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class QueueState:
    """The state of a queue; ages are in seconds, and counts of ready runs end at SAMPLE."""

    name: str
    max_running: int | None
    paused_at: str | None
    paused_seconds: float | None
    paused_reason: str
    paused_by: str
    running: int
    ready: int
    oldest_seconds: float
    homeless: int
    homeless_seconds: float
    homeless_agents: list[str]
    children: int

    @property
    def is_paused(self) -> bool:
        return self.paused_seconds is not None

    @property
    def paused_for(self) -> timedelta:
        return timedelta(seconds=self.paused_seconds or 0)


def parameters() -> dict[str, Any]:
    """The parameters of QUEUES."""
    return {**patience(), "known": settings.WAKEFUL_QUEUES, "sample": SAMPLE}


def all_queues() -> list[QueueState]:
    """Every queue by name; the first one, "*", stands for all of them."""
    rows = fetch_column(f"SELECT row_to_json(queue) FROM ({QUEUES}) queue", parameters())  # noqa: S608
    return [QueueState(**row) for row in rows]


def find_queue(name: str) -> QueueState:
    """The queue of this name, or UnknownQueue."""
    for queue in all_queues():
        if queue.name == name:
            return queue
    raise UnknownQueue(name)
