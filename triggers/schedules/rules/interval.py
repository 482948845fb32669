"""A fixed interval from an anchor."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from agents.kernel.durations import in_words, parse_duration
from triggers.exceptions import RuleError

# Of an interval: below, a typing error would flood the log of events; above, arithmetic would leave the calendar.
SHORTEST, LONGEST = timedelta(milliseconds=100), timedelta(days=36_525)


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Anchor + k × every, for k = 0, 1, 2 …; clock changes do not touch it."""

    every: timedelta
    anchor: datetime | None = None

    def __post_init__(self) -> None:
        if not SHORTEST <= self.every <= LONGEST:
            raise RuleError(f"an interval of {in_words(self.every)} is not between 0.1 s and 100 years")

    @classmethod
    def parse(cls, text: str | float | timedelta) -> "Interval":
        """Parse "30m" or "1h30m", seconds, or a timedelta."""
        try:
            return cls(every=parse_duration(text))
        except (ValueError, OverflowError) as error:
            raise RuleError(str(error)) from None

    @property
    def words(self) -> str:
        """Such as "every 1 hour 30 minutes"."""
        return f"every {describe_length(self.every)}"

    def __str__(self) -> str:
        return self.words

    def fires(self, after: datetime) -> Iterator[datetime]:
        """The nominal times after an instant, in order; counted from `after` where the interval has no anchor yet."""
        anchor = self.anchor or after
        with suppress(OverflowError):  # the calendar ends
            fire = anchor + max(0, (after - anchor) // self.every + 1) * self.every
            while True:
                yield fire
                fire += self.every


def describe_length(length: timedelta) -> str:
    """Such as "1 hour 30 minutes" or "0.5 seconds"."""
    minutes, seconds = divmod(length, timedelta(minutes=1))
    days, minutes = divmod(minutes, 1440)
    counts = {"day": days, "hour": minutes // 60, "minute": minutes % 60, "second": seconds / timedelta(seconds=1)}
    return " ".join(f"{count:.8g} {unit}{'' if count == 1 else 's'}" for unit, count in counts.items() if count)
