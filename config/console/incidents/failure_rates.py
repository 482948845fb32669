"""How often the runs of a trigger or an agent fail: of its last runs that ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from config.console.parts.newest_runs import newest_runs_of
from config.console.runs.last_runs import LAST, Rate
from runs.db.sql import fetch, fetch_as

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
FROM (SELECT id, trigger, agent, finished_at, error FROM runs_run WHERE status = 'failed' ORDER BY id DESC LIMIT %(most)s::int) run
WHERE finished_at > clock_timestamp() - interval '1 day' AND NOT (%(without_muted)s::bool AND EXISTS (
  SELECT FROM runs_coveredrun covered JOIN runs_incident incident ON incident.id = covered.incident_id
  WHERE covered.run_id = run.id AND incident.muted_at IS NOT NULL))
GROUP BY trigger, CASE WHEN trigger = '' THEN agent END
ORDER BY last_at DESC
"""
FAILED_OF = """
SELECT id FROM (SELECT id, trigger, finished_at FROM runs_run WHERE status = 'failed' ORDER BY id DESC LIMIT %(most)s::int) run
WHERE trigger = %(trigger)s::text AND finished_at > clock_timestamp() - interval '1 day' AND finished_at <= %(upto)s::timestamptz
"""


@dataclass(frozen=True, kw_only=True)
class Failing:
    """A trigger, or an agent without one, that has failed runs of the last day."""

    trigger: str
    agent: str
    count: int
    first_at: datetime
    last_at: datetime
    error: str


def failed_lately(*, without_muted: bool) -> list[Failing]:
    """The last one to fail comes first. Without the runs that a muted incident covers."""
    return fetch_as(Failing, FAILED_LATELY, {"most": FAILED, "without_muted": without_muted})


def failed_of(trigger: str, upto: datetime) -> list[UUID]:
    """The runs that `failed_lately` counts for a trigger, if the last of them failed at `upto`."""
    return [id for (id,) in fetch(FAILED_OF, {"trigger": trigger, "upto": upto, "most": FAILED})]


def rates_of_triggers(slugs: Sequence[str] | None = None) -> dict[str, Rate]:
    """By slug; of these, or of all."""
    return {slug: Rate(failed, runs) for _, slug, failed, runs in _rates(slugs)}


def rates_of_spawned() -> dict[str, Rate]:
    """By agent, of its runs without a trigger."""
    return {agent: Rate(failed, runs) for agent, failed, runs in fetch(RATES_OF_SPAWNED, {"most": SPAWNED})}


def _rates(slugs: Sequence[str] | None) -> list[tuple[str, str, int, int]]:
    found: list[tuple[str, str, int, int]] = fetch(RATES, {"slugs": slugs, "most": MOST, "last": LAST})
    return found
