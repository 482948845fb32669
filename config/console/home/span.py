"""The last 24 hours, and the 24 before them: what the page counts, and the links to exactly that."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from config.console.parts.links import listing
from config.console.runs.started_filter import interval

HOUR = timedelta(hours=1)
HOURS = 24


@dataclass(frozen=True)
class Span:
    """A span of time of at most 24 hours."""

    start: datetime
    end: datetime

    def runs(self, **filters: Any) -> str:
        """The list of the runs that events of this time woke."""
        return listing("runs_run", start=_utc(self.start), end=_utc(self.end), **filters)

    @property
    def started(self) -> str:
        """The list of those among them whose time from event to start is known."""
        return listing("runs_run", started=interval(self.start, self.end))

    @property
    def overnight(self) -> str:
        """The page of what agents did in this time."""
        query = {"from": _utc(self.start), "to": _utc(self.end)}
        return f"{reverse('overnight')}?{urlencode(query)}"

    @property
    def hours(self) -> list["Span"]:
        return [Span(self.start + HOUR * number, self.start + HOUR * (number + 1)) for number in range(HOURS)]


def spans(now: datetime) -> tuple[Span, Span]:
    """The last 24 hours, which begin and end at a full hour, and the same time of the day before.

    The page is requested again and again: it changes with the minute, not with each request.
    """
    minute = now.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
    start = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) - HOUR * (HOURS - 1)
    day = HOUR * HOURS
    return Span(start, start + day), Span(start - day, minute - day)


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M}Z"
