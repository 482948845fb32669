"""How often the runs of a trigger or an agent fail: of its last runs that ended."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from runs.db.sql import fetch

LAST = 50  # runs of a trigger
MOST = 1_000  # triggers of one page
RATES = """
SELECT trigger.agent, trigger.slug, count(*) FILTER (WHERE run.status = 'failed'), count(*)
FROM (SELECT slug, agent FROM triggers_trigger
      WHERE %(slugs)s::text[] IS NULL OR slug = ANY(%(slugs)s::text[]) ORDER BY slug LIMIT %(most)s::int) trigger
CROSS JOIN LATERAL (
  SELECT status FROM runs_run WHERE trigger = trigger.slug AND status IN ('succeeded', 'failed')
  ORDER BY id DESC LIMIT %(last)s::int) run
GROUP BY trigger.agent, trigger.slug
"""


@dataclass(frozen=True)
class Rate:
    """So many of the last runs failed."""

    failed: int = 0
    runs: int = 0

    def __add__(self, other: "Rate") -> "Rate":
        return Rate(self.failed + other.failed, self.runs + other.runs)

    def __str__(self) -> str:
        return f"{self.failed} of its last {self.runs} runs failed" if self.runs else ""

    @property
    def in_short(self) -> str:
        return f"{self.failed} of {self.runs}" if self.runs else "–"


def rates_of_triggers(slugs: Sequence[str] | None = None) -> dict[str, Rate]:
    """By slug; of these, or of all."""
    return {slug: Rate(failed, runs) for _, slug, failed, runs in _rates(slugs)}


def rates_of_agents() -> dict[str, Rate]:
    """By agent, over its triggers."""
    found: dict[str, Rate] = defaultdict(Rate)
    for agent, _, failed, runs in _rates(None):
        found[agent] += Rate(failed, runs)
    return found


def _rates(slugs: Sequence[str] | None) -> list[tuple[str, str, int, int]]:
    found: list[tuple[str, str, int, int]] = fetch(RATES, {"slugs": slugs, "most": MOST, "last": LAST})
    return found
