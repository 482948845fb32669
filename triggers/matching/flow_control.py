"""Flow control of a trigger: its rate, and the windows that turn several events into one run."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, get_args

from agents.kernel.durations import in_words
from runs.enqueue import EVENTS_PER_RUN

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
RATE = re.compile(r"([1-9]\d{0,15})/([1-9]\d{0,15})?([smhd])")
MOST_COUNTED = 1000  # starts that are stored per key
LONGEST_PERIOD = timedelta(days=366)
DEBOUNCES = 10  # default maximum wait of a debounce, as a multiple of its length
BATCH_WAIT = timedelta(seconds=60)

Overflow = Literal["delay", "drop"]


@dataclass(frozen=True, kw_only=True)
class Rate:
    """At most `limit` starts in any span of `period`."""

    limit: int
    period: timedelta

    @classmethod
    def parse(cls, text: str) -> "Rate":
        """Parse "10/h" or "100/15m" (s, m, h, d). ValueError names the fault."""
        found = RATE.fullmatch(text)
        if not found:
            raise ValueError(f"rate {text!r} is not valid; use e.g. 10/h or 100/15m (s, m, h or d)")
        limit, count, unit = found.groups()
        if int(limit) > MOST_COUNTED:
            raise ValueError(f"rate {text!r} counts more than {MOST_COUNTED} starts; use a shorter period")
        seconds = int(count or 1) * UNITS[unit]
        if seconds > LONGEST_PERIOD.total_seconds():
            raise ValueError(f"rate {text!r} has too long a period; use at most a year")
        return cls(limit=int(limit), period=timedelta(seconds=seconds))

    @property
    def spacing(self) -> timedelta:
        return self.period / self.limit

    @property
    def words(self) -> str:
        """Such as "20 times in 1 min"."""
        return f"{self.limit} {'time' if self.limit == 1 else 'times'} in {in_words(self.period)}"


@dataclass(frozen=True, kw_only=True)
class Intake:
    """A trigger's flow control. Stored in the trigger's `policy` as JSON, with durations in seconds."""

    rate: Rate | None = None
    overflow: Overflow = "delay"
    debounce: timedelta = timedelta()
    batch: int = 0
    max_wait: timedelta = timedelta()
    own_changes: bool = False  # do changes of watched tables by its own agent count?

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> "Intake":
        """Read it from a trigger's policy, ignoring other keys. ValueError names the wrong value."""
        overflow: Overflow = stored.get("overflow") or "delay"
        if overflow not in get_args(Overflow):
            raise ValueError(f"policy: overflow is {overflow!r}; use delay or drop")
        rate = stored.get("rate") or ""
        if not isinstance(rate, str):
            raise ValueError(f"policy: rate is {rate!r}; use a string such as 10/h")
        try:
            parsed = Rate.parse(rate) if rate else None
        except ValueError as error:
            raise ValueError(f"policy: {error}") from error
        batch = stored.get("batch") or 0
        if isinstance(batch, bool) or not isinstance(batch, int) or not 0 <= batch <= EVENTS_PER_RUN:
            raise ValueError(f"policy: batch is {batch!r}; use a whole number up to {EVENTS_PER_RUN}")
        own_changes = stored.get("own_changes", False)
        if not isinstance(own_changes, bool):
            raise ValueError(f"policy: own_changes is {own_changes!r}; use true or false")
        debounce = _seconds(stored, "debounce")
        return cls(
            rate=parsed, overflow=overflow, debounce=debounce, batch=batch, own_changes=own_changes,
            max_wait=_seconds(stored, "max_wait") or debounce * DEBOUNCES or (BATCH_WAIT if batch else timedelta()),
        )  # fmt: skip

    @property
    def has_window(self) -> bool:
        return bool(self.debounce or self.batch)

    @property
    def needs_group(self) -> bool:
        return self.has_window or self.rate is not None

    @property
    def most(self) -> int:
        """The maximum number of events in one window."""
        return self.batch or EVENTS_PER_RUN


def _seconds(stored: Mapping[str, Any], name: str) -> timedelta:
    value = stored.get(name) or 0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 30 * UNITS["d"]:
        raise ValueError(f"policy: {name} is {value!r}; use a number of seconds up to 30 days")
    return timedelta(seconds=value)
