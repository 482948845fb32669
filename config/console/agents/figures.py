"""What the last runs of agents came to: how they ended, how long they took, and how often they failed, over time and by version.

No index finds the runs of an agent. They are read by trigger, each the newest LAST runs of its index; runs that other runs have spawned,
which have no trigger, among the newest SPAWNED. An agent's page reads more of each, so that its failure rate has a past."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from uuid import UUID

from config.console.parts.newest_runs import newest_runs_of
from runs.db.sql import fetch_as

LAST = 50  # runs of an agent, and of each of its triggers
SPAWNED = 1_000
MOST = 1_000  # triggers of the list
MOST_OF_ONE = 20  # triggers of an agent's page
PAST = 500  # runs of each of them
STRIP = 20
SLOTS = 24

LAST_RUNS = f"""
WITH found AS (
  SELECT run.* FROM (SELECT slug FROM triggers_trigger ORDER BY slug LIMIT %(triggers)s::int) thing
  CROSS JOIN LATERAL (
    SELECT id, agent, status, created_at, started_at, finished_at FROM runs_run
    WHERE {newest_runs_of("thing.slug")} LIMIT %(last)s::int) run
  UNION ALL (
    SELECT id, agent, status, created_at, started_at, finished_at FROM runs_run
    WHERE {newest_runs_of("''")} LIMIT %(spawned)s::int)
), run AS (
  SELECT *, row_number() OVER (PARTITION BY agent ORDER BY id DESC) AS place FROM found
)
SELECT agent, count(*) FILTER (WHERE status = 'failed')::int AS failed,
  count(*) FILTER (WHERE status IN ('succeeded', 'failed'))::int AS ended, max(created_at) AS last_at,
  percentile_disc(0.95) WITHIN GROUP (ORDER BY finished_at - started_at)
    FILTER (WHERE status IN ('succeeded', 'failed')) AS p95,
  array_agg(status ORDER BY id) FILTER (WHERE place <= %(strip)s::int) AS strip
FROM run WHERE place <= %(last)s::int GROUP BY agent
"""  # noqa: S608  (our own parts)
RUNS_OF = f"""
SELECT id, trigger, status, status_reason, version, error, created_at, started_at, finished_at FROM (
  SELECT run.* FROM unnest(%(slugs)s::text[]) AS of(slug)
  CROSS JOIN LATERAL (
    SELECT id, agent, trigger, status, status_reason, version, left(error, 300) AS error, created_at, started_at, finished_at
    FROM runs_run WHERE {newest_runs_of("of.slug")} LIMIT %(past)s::int) run
  UNION ALL (
    SELECT id, agent, trigger, status, status_reason, version, left(error, 300) AS error, created_at, started_at, finished_at
    FROM runs_run WHERE {newest_runs_of("''")} LIMIT %(spawned)s::int)
) run
WHERE agent = %(agent)s ORDER BY id DESC
"""  # noqa: S608  (our own parts)
# By the index on the time of the next fire: what fires later than the first MOST has no next wake here.
NEXT_WAKES = """
SELECT trigger.agent, min(schedule.next_fire_at) AS at
FROM (SELECT trigger_id, next_fire_at FROM triggers_schedule WHERE next_fire_at IS NOT NULL
      ORDER BY next_fire_at LIMIT %(most)s::int) schedule
JOIN triggers_trigger trigger ON trigger.id = schedule.trigger_id
WHERE trigger.enabled AND trigger.paused_at IS NULL GROUP BY trigger.agent
"""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of the last runs of an agent, at most LAST. `strip`: the status of the newest of them, the oldest first."""

    agent: str
    failed: int = 0
    ended: int = 0
    last_at: datetime | None = None
    p95: timedelta | None = None
    strip: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class PastRun:
    id: UUID
    trigger: str
    status: str
    status_reason: str
    version: str
    error: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def has_ended(self) -> bool:
        return self.status in ("succeeded", "failed")


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A part of the time that the past runs of an agent cover. `versions`: those that ran first in it."""

    start: datetime
    ended: int
    failed: int
    versions: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Version:
    """A version of an agent's code, as its runs have it."""

    name: str
    runs: int
    failed: int
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True)
class _Wake:
    agent: str
    at: datetime


def figures_of_agents() -> dict[str, Figures]:
    asked = {"triggers": MOST, "last": LAST, "spawned": SPAWNED, "strip": STRIP}
    return {one.agent: one for one in fetch_as(Figures, LAST_RUNS, asked)}


def next_wakes() -> dict[str, datetime]:
    """By agent, the next fire of its schedules."""
    return {one.agent: one.at for one in fetch_as(_Wake, NEXT_WAKES, {"most": MOST})}


def past_runs(agent: str, slugs: Sequence[str]) -> list[PastRun]:
    """The newest first: of these triggers, and those that other runs have spawned."""
    asked = {"agent": agent, "slugs": list(slugs[:MOST_OF_ONE]), "past": PAST, "spawned": SPAWNED}
    return fetch_as(PastRun, RUNS_OF, asked)


def durations(runs: Sequence[PastRun]) -> tuple[timedelta, timedelta] | None:
    """The median time from start to end of the last of them that ended, and the 95th percentile."""
    took = sorted(
        one.finished_at - one.started_at for one in runs[:LAST] if one.has_ended and one.started_at and one.finished_at
    )
    if not took:
        return None
    return took[ceil(len(took) * 0.5) - 1], took[ceil(len(took) * 0.95) - 1]


def over_time(runs: Sequence[PastRun]) -> list[Slot]:
    """SLOTS equal parts of the time from the oldest of these runs to the newest; empty unless two of them ended."""
    ended = [one for one in reversed(runs) if one.has_ended]
    if len(ended) < 2:
        return []
    begin, end = min(one.created_at for one in ended), max(one.created_at for one in ended)
    width = max((end - begin) / SLOTS, timedelta(seconds=1))
    parts: list[list[PastRun]] = [[] for _ in range(SLOTS)]
    for one in ended:
        parts[min(int((one.created_at - begin) / width), SLOTS - 1)].append(one)
    slots, seen = [], {ended[0].version}
    for number, part in enumerate(parts):
        new = [name for name in dict.fromkeys(one.version for one in part) if name not in seen]
        seen.update(new)
        failed = sum(one.status == "failed" for one in part)
        slots.append(Slot(start=begin + number * width, ended=len(part), failed=failed, versions=new))
    return slots


def versions_of(runs: Sequence[PastRun]) -> list[Version]:
    """The newest first; a run that has not begun has none."""
    found: dict[str, list[PastRun]] = {}
    for one in runs:
        if one.version:
            found.setdefault(one.version, []).append(one)
    return [
        Version(
            name=name,
            runs=len(of),
            failed=sum(one.status == "failed" for one in of),
            first_at=of[-1].created_at,
            last_at=of[0].created_at,
        )
        for name, of in found.items()
    ]
