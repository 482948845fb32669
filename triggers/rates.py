"""Rates: when the latest runs of each key were let start. Only the dispatcher, under its lock, looks and writes here."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from runs.sql import execute_many, fetch
from triggers.intake import Rate

READ = "SELECT key, starts FROM triggers_rateuse WHERE key = ANY(%s::text[])"
WRITE = """
INSERT INTO triggers_rateuse (key, starts) VALUES (%s::text, %s::timestamptz[])
ON CONFLICT (key) DO UPDATE SET starts = excluded.starts
"""


@dataclass(kw_only=True)
class Use:
    """The starts of one key, ascending; a delayed run's is in the future."""

    starts: list[datetime] = field(default_factory=list)
    has_changed: bool = False

    def next_start(self, rate: Rate, now: datetime) -> datetime:
        """The first instant the rate allows another start at; `now` where it allows one at once. Starts stay in order."""
        if len(self.starts) < rate.limit:
            return max([now, *self.starts[-1:]])
        return max(now, self.starts[-1], self.starts[-rate.limit] + rate.period)

    def take(self, start: datetime, rate: Rate) -> None:
        self.starts = [*self.starts, start][-rate.limit :]
        self.has_changed = True


def read(keys: Iterable[str]) -> dict[str, Use]:
    wanted = sorted(set(keys))
    found = {key: list(starts) for key, starts in fetch(READ, [wanted])} if wanted else {}
    return {key: Use(starts=found.get(key, [])) for key in wanted}


def write(uses: dict[str, Use]) -> None:
    changed = [(key, use.starts) for key, use in sorted(uses.items()) if use.has_changed]
    if changed:
        execute_many(WRITE, changed)
