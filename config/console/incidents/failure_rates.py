"""How often the runs of a trigger or an agent fail: of its last runs that ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from config.console.parts.newest_runs import newest_runs_of
from runs.db.sql import fetch, fetch_as

LAST = 50  # runs of a trigger
MOST = 1_000  # triggers of one page
SPAWNED = FAILED = 1_000  # runs without a trigger, and failed runs, that are read: an agent's own are in no index
RATES = f"""
SELECT thing.agent, thing.slug, count(*) FILTER (WHERE run.status = 'failed'), count(*)
FROM (SELECT slug, agent FROM triggers_trigger
      WHERE %(slugs)s::text[] IS NULL OR slug = ANY(%(slugs)s::text[]) ORDER BY slug LIMIT %(most)s::int) thing
CROSS JOIN LATERAL (
  SELECT status FROM runs_run WHERE status IN ('succeeded', 'failed') AND {newest_runs_of("thing.slug")} LIMIT %(last)s::int) run
GROUP BY thing.agent, thing.slug
"""  # noqa: S608  (our own parts)
RATES_OF_SPAWNED = f"""
SELECT agent, count(*) FILTER (WHERE status = 'failed'), count(*)
FROM (SELECT agent, status FROM runs_run WHERE status IN ('succeeded', 'failed')
      AND {newest_runs_of("''")} LIMIT %(most)s::int) run
GROUP BY agent
"""  # noqa: S608  (our own parts)
FAILED_LATELY = """
SELECT trigger, max(agent) AS agent, count(*) AS count, min(finished_at) AS first_at, max(finished_at) AS last_at,
  (array_agg(left(error, 300) ORDER BY finished_at DESC))[1] AS error
FROM (SELECT trigger, agent, finished_at, error FROM runs_run WHERE status = 'failed' ORDER BY id DESC LIMIT %(most)s::int) run
WHERE finished_at > clock_timestamp() - interval '1 day'
GROUP BY trigger, CASE WHEN trigger = '' THEN agent END
ORDER BY last_at DESC
"""


@dataclass(frozen=True)
class Rate:
    """So many of the last runs failed."""

    failed: int = 0
    runs: int = 0

    def __str__(self) -> str:
        return f"{self.failed} of its last {self.runs} runs failed" if self.runs else ""

    @property
    def in_short(self) -> str:
        return f"{self.failed} of {self.runs}" if self.runs else "–"


@dataclass(frozen=True, kw_only=True)
class Failing:
    """A trigger, or an agent without one, that has failed runs of the last day."""

    trigger: str
    agent: str
    count: int
    first_at: datetime
    last_at: datetime
    error: str


def failed_lately() -> list[Failing]:
    """The last one to fail comes first."""
    return fetch_as(Failing, FAILED_LATELY, {"most": FAILED})


def rates_of_triggers(slugs: Sequence[str] | None = None) -> dict[str, Rate]:
    """By slug; of these, or of all."""
    return {slug: Rate(failed, runs) for _, slug, failed, runs in _rates(slugs)}


def rates_of_spawned() -> dict[str, Rate]:
    """By agent, of its runs without a trigger."""
    return {agent: Rate(failed, runs) for agent, failed, runs in fetch(RATES_OF_SPAWNED, {"most": SPAWNED})}


def _rates(slugs: Sequence[str] | None) -> list[tuple[str, str, int, int]]:
    found: list[tuple[str, str, int, int]] = fetch(RATES, {"slugs": slugs, "most": MOST, "last": LAST})
    return found
