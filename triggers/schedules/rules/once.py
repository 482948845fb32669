"""A single instant."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from triggers.schedules.clock import aware, refuse_beyond


@dataclass(frozen=True, kw_only=True)
class Clocked:
    """A rule with a single instant."""

    at: datetime

    @classmethod
    def parse(cls, instant: str | datetime) -> "Clocked":
        """Parse a datetime, or text such as "2026-12-01T09:00+01:00"; it must have an offset."""
        return cls(at=aware(instant))

    def __post_init__(self) -> None:
        refuse_beyond(self.at)

    @property
    def words(self) -> str:
        return f"once, at {self.at:%Y-%m-%d %H:%M:%S} UTC"

    def __str__(self) -> str:
        return f"at {self.at.isoformat()}"

    def fires(self, after: datetime) -> Iterator[datetime]:
        """The only nominal time, if it is after the instant."""
        if self.at > after:
            yield self.at
