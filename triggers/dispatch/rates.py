"""Rates: the latest starts of each key. Only the dispatcher reads and writes them, under its lock."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from runs.db.sql import execute_many, fetch
from triggers.matching.flow_control import Rate

# If the clock was ahead and has been set back, old starts lie in the future and would block new runs. Rows that were written
# in the future are shifted to now, and stored that way. (A difference of up to a second is normal clock slewing.)
READ = """
SELECT key, starts, CASE WHEN written_at > %s::timestamptz + interval '1 second' THEN written_at - %s::timestamptz
                    ELSE interval '0' END
FROM triggers_rateuse WHERE key = ANY(%s::text[])
"""
WRITE = """
INSERT INTO triggers_rateuse (key, starts, written_at) VALUES (%s::text, %s::timestamptz[], %s::timestamptz)
ON CONFLICT (key) DO UPDATE SET starts = excluded.starts, written_at = excluded.written_at
"""


@dataclass(kw_only=True)
class Use:
    """The starts of one key, ascending; the start of a delayed run is in the future."""

    starts: list[datetime] = field(default_factory=list)
    has_changed: bool = False

    def next_start(self, rate: Rate, now: datetime) -> datetime:
        """The first instant at which the rate allows another start, possibly `now`. Starts stay in order."""
        if len(self.starts) < rate.limit:
            return max([now, *self.starts[-1:]])
        return max(now, self.starts[-1], self.starts[-rate.limit] + rate.period)

    def take(self, start: datetime, rate: Rate) -> None:
        self.starts = [*self.starts, start][-rate.limit :]
        self.has_changed = True


def read(keys: Iterable[str], now: datetime) -> dict[str, Use]:
    wanted = sorted(set(keys))
    rows = fetch(READ, [now, now, wanted]) if wanted else []
    found = {
        key: Use(starts=[start - ahead for start in starts], has_changed=bool(ahead)) for key, starts, ahead in rows
    }
    return {key: found.get(key) or Use() for key in wanted}


def write(uses: dict[str, Use], now: datetime) -> None:
    changed = [(key, use.starts, now) for key, use in sorted(uses.items()) if use.has_changed]
    if changed:
        execute_many(WRITE, changed)
