"""The last runs of triggers that ended: strips, failure rates and durations."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from agents.kernel.durations import in_words
from config.console.incidents.failure_rates import LAST, Rate
from config.console.parts.newest_runs import newest_runs_of
from runs.db.sql import fetch
from runs.states import RunStatus

LOOKED_AT = 200  # newest runs of a trigger, among which the last that ended are found
SPAWNED = 500  # newest runs without a trigger
STRIP = 20
RUNS = f"""
SELECT thing.slug, newest.agent, newest.status, newest.seconds
FROM unnest(%(slugs)s::text[]) thing (slug)
CROSS JOIN LATERAL (
  SELECT id, agent, status, seconds FROM (
    SELECT id, agent, status, extract(epoch FROM finished_at - started_at)::float8 AS seconds
    FROM runs_run WHERE {newest_runs_of("thing.slug")}
    LIMIT CASE thing.slug WHEN '' THEN %(spawned)s::int ELSE %(looked_at)s::int END) run
  WHERE status IN ('succeeded', 'failed', 'cancelled')
  ORDER BY id DESC LIMIT CASE thing.slug WHEN '' THEN %(spawned)s::int ELSE %(last)s::int END) newest
ORDER BY newest.id DESC
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True)
class Ended:
    status: str
    seconds: float | None


class LastRuns:
    """Of triggers by slug, and of agents over their triggers and the runs that others spawned. The newest first."""

    def __init__(self, slugs: Sequence[str]) -> None:
        self._of_trigger: dict[str, list[Ended]] = defaultdict(list)
        self._of_agent: dict[str, list[Ended]] = defaultdict(list)
        self._spawned: dict[str, list[Ended]] = defaultdict(list)
        asked = {"slugs": ["", *slugs], "spawned": SPAWNED, "looked_at": LOOKED_AT, "last": LAST}
        for slug, agent, status, seconds in fetch(RUNS, asked):
            ended = Ended(status, seconds)
            self._of_agent[agent].append(ended)
            (self._of_trigger[slug] if slug else self._spawned[agent]).append(ended)

    def of_trigger(self, slug: str) -> "Strip":
        return Strip(self._of_trigger[slug][:LAST])

    def of_agent(self, agent: str) -> "Strip":
        return Strip(self._of_agent[agent][:LAST])

    def of_spawned(self, agent: str) -> "Strip":
        return Strip(self._spawned[agent][:LAST])


@dataclass(frozen=True)
class Strip:
    """Runs as small marks, the newest on the right."""

    runs: Sequence[Ended]

    @property
    def marks(self) -> list[tuple[int, str]]:
        shown = self.runs[:STRIP][::-1]
        return [(number * 7, run.status) for number, run in enumerate(shown)]

    @property
    def width(self) -> int:
        return max(len(self.runs[:STRIP]) * 7, 7)

    @property
    def rate(self) -> Rate:
        ended = [run for run in self.runs if run.status != RunStatus.CANCELLED]
        return Rate(sum(run.status == RunStatus.FAILED for run in ended), len(ended))

    @property
    def says(self) -> str:
        shown = self.runs[:STRIP]
        failed = sum(run.status == RunStatus.FAILED for run in shown)
        return f"the last {len(shown)} runs that ended: {failed} failed"

    @property
    def p95(self) -> str:
        took = sorted(run.seconds for run in self.runs if run.seconds is not None and run.status == RunStatus.SUCCEEDED)
        if not took:
            return ""
        seconds = took[min(int(len(took) * 0.95), len(took) - 1)]
        return f"{seconds:.1f} s" if seconds < 10 else in_words(timedelta(seconds=round(seconds)))
