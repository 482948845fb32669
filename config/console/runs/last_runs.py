"""The last runs of a trigger or an agent that ended: strips, failure rates and durations; and the filter that finds exactly those."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.db.models import QuerySet

from agents.kernel.durations import in_words
from config.console.parts.filters import LinkedFilter
from config.console.parts.links import listing
from config.console.parts.newest_runs import newest_runs_of
from runs.db.sql import fetch
from runs.models import Run
from runs.states import RunStatus

LAST = 50  # runs of a trigger
LOOKED_AT = 200  # newest runs of a trigger, among which the last that ended are found
SPAWNED = 500  # newest runs without a trigger
TRIGGERS = 20  # of an agent
STRIP = 20
RUNS = f"""
SELECT thing.slug, newest.id, newest.agent, newest.status, newest.seconds
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
TRIGGERS_OF = """
SELECT agent.name, trigger.slug FROM unnest(%(agents)s::text[]) agent (name)
CROSS JOIN LATERAL (
  SELECT slug FROM triggers_trigger WHERE agent = agent.name ORDER BY slug LIMIT %(most)s::int) trigger
"""
STRIP_OF, RATE_OF, TIMES_OF = "marks", "rate", "times"  # the runs of a strip that a number counts


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


@dataclass(frozen=True)
class Ended:
    id: UUID
    status: str
    seconds: float | None


class LastRuns:
    """Of triggers by slug, and of agents over their triggers and the runs that others spawned. The newest first."""

    def __init__(self, slugs: Sequence[str], triggers_of: Mapping[str, Sequence[str]]) -> None:
        """`triggers_of`: the slugs of the triggers of each agent, see `triggers_of_agents`."""
        self._of_trigger: dict[tuple[str, str], list[Ended]] = defaultdict(list)  # and agent
        self._triggers_of = triggers_of
        every = {"", *slugs, *(slug for found in triggers_of.values() for slug in found)}
        asked = {"slugs": sorted(every), "spawned": SPAWNED, "looked_at": LOOKED_AT, "last": LAST}
        for slug, id, agent, status, seconds in fetch(RUNS, asked):
            self._of_trigger[slug, agent].append(Ended(id, status, seconds))

    def of_trigger(self, slug: str) -> "Strip":
        found = [runs for (of, _), runs in self._of_trigger.items() if of == slug]
        return Strip(_newest(found), f"trigger:{slug}")

    def of_agent(self, agent: str) -> "Strip":
        found = [self._of_trigger[slug, agent] for slug in ("", *self._triggers_of.get(agent, ()))]
        return Strip(_newest(found), f"agent:{agent}")

    def of_spawned(self, agent: str) -> "Strip":
        return Strip(self._of_trigger["", agent][:LAST], f"spawned:{agent}")


def _newest(found: Sequence[Sequence[Ended]]) -> list[Ended]:
    return sorted((run for runs in found for run in runs), key=lambda run: run.id, reverse=True)[:LAST]


def triggers_of_agents(agents: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for agent, slug in fetch(TRIGGERS_OF, {"agents": list(agents), "most": TRIGGERS}):
        found[agent].append(slug)
    return found


def strip_of(whose: str) -> "Strip":
    """`trigger:<slug>`, `agent:<name>` or `spawned:<agent>`."""
    kind, _, name = whose.partition(":")
    match kind:
        case "trigger":
            return LastRuns([name], {}).of_trigger(name)
        case "agent":
            return LastRuns([], triggers_of_agents([name])).of_agent(name)
        case "spawned":
            return LastRuns([], {}).of_spawned(name)
    return Strip([], whose)


@dataclass(frozen=True)
class Strip:
    """Runs as small marks, the newest on the right. `whose`: see `strip_of`."""

    runs: Sequence[Ended]
    whose: str

    @property
    def shown(self) -> Sequence[Ended]:
        return self.runs[:STRIP]

    @property
    def marks(self) -> list[tuple[int, str]]:
        return [(number * 7, run.status) for number, run in enumerate(self.shown[::-1])]

    @property
    def width(self) -> int:
        return max(len(self.shown) * 7, 7)

    @property
    def rated(self) -> Sequence[Ended]:
        return [run for run in self.runs if run.status != RunStatus.CANCELLED]

    @property
    def rate(self) -> Rate:
        return Rate(sum(run.status == RunStatus.FAILED for run in self.rated), len(self.rated))

    @property
    def says(self) -> str:
        failed = sum(run.status == RunStatus.FAILED for run in self.shown)
        return f"the last {len(self.shown)} runs that ended: {failed} failed"

    @property
    def timed(self) -> Sequence[Ended]:
        return [run for run in self.runs if run.seconds is not None and run.status == RunStatus.SUCCEEDED]

    @property
    def p95(self) -> str:
        took = sorted(run.seconds for run in self.timed if run.seconds is not None)
        if not took:
            return ""
        seconds = took[min(int(len(took) * 0.95), len(took) - 1)]
        return f"{seconds:.1f} s" if seconds < 10 else in_words(timedelta(seconds=round(seconds)))

    def part(self, name: str) -> Sequence[Ended]:
        return {STRIP_OF: self.shown, RATE_OF: self.rated, TIMES_OF: self.timed}.get(name, [])

    @property
    def marks_url(self) -> str:
        return self._url(STRIP_OF)

    @property
    def rate_url(self) -> str:
        return self._url(RATE_OF)

    @property
    def times_url(self) -> str:
        return self._url(TIMES_OF)

    def _url(self, part: str) -> str:
        return listing("runs_run", last=f"{part}:{self.whose}")


class LastFilter(LinkedFilter):
    """The runs of a strip, found in the same way, so that they are exactly those."""

    title = "last runs"
    parameter_name = "last"

    def parse(self, text: str) -> tuple[str, str] | None:
        part, _, whose = text.partition(":")
        return (part, whose) if whose else None

    def label(self, value: tuple[str, str]) -> str:
        part, whose = value
        return f"{part} of the last {LAST} that ended, {whose.replace(':', ' ')}"

    def narrow(self, rows: QuerySet[Run], value: tuple[str, str]) -> QuerySet[Run]:
        part, whose = value
        return rows.filter(pk__in=[run.id for run in strip_of(whose).part(part)])
