"""A single instant."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from triggers.exceptions import RuleError
from triggers.schedules.clock import refuse_beyond, refuse_long


@dataclass(frozen=True, kw_only=True)
class Clocked:
    """Once, at an instant."""

    at: datetime

    @classmethod
    def parse(cls, instant: str | datetime) -> "Clocked":
        """From a datetime, or text such as "2026-12-01T09:00+01:00"; it must have an offset."""
        if isinstance(instant, str):
            refuse_long(instant, "an instant")
        try:
            at = datetime.fromisoformat(instant) if isinstance(instant, str) else instant
            in_utc = at.astimezone(UTC)
        except (ValueError, OverflowError):
            raise RuleError(f"{instant!r} is no instant; write such as 2026-12-01T09:00+01:00") from None
        if at.tzinfo is None:
            raise RuleError(f"{instant!s} has no offset; write such as 2026-12-01T09:00+01:00")
        return cls(at=in_utc)

    def __post_init__(self) -> None:
        refuse_beyond(self.at)

    @property
    def words(self) -> str:
        return f"once, at {self.at:%Y-%m-%d %H:%M:%S} UTC"

    def __str__(self) -> str:
        return f"at {self.at.isoformat()}"

    def fires(self, after: datetime) -> Iterator[datetime]:
        """Its one nominal time, if that is after the instant."""
        if self.at > after:
            yield self.at
