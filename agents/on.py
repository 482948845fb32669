"""What may wake an agent, as its author declares it; `sync_agents` turns each into a Trigger row."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from .durations import parse_duration

CatchUp = Literal["latest", "skip", "all"]


@dataclass(frozen=True, kw_only=True)
class EventTrigger:
    """Events whose type matches one of the globs, from one source or any, that pass the CEL filter."""

    types: tuple[str, ...]
    source: str = ""
    filter: str = ""
    slug: str = ""


@dataclass(frozen=True, kw_only=True)
class CronTrigger:
    """A five-field crontab in an IANA zone."""

    cron: str
    tz: str = "UTC"
    missed: CatchUp = "latest"
    slug: str = ""


@dataclass(frozen=True, kw_only=True)
class IntervalTrigger:
    """Every so often, counted from the moment the schedule is first seen."""

    every: timedelta
    missed: CatchUp = "latest"
    slug: str = ""


@dataclass(frozen=True, kw_only=True)
class ClockedTrigger:
    """Once, at an instant."""

    at: datetime
    missed: CatchUp = "latest"
    slug: str = ""


ScheduleTrigger = CronTrigger | IntervalTrigger | ClockedTrigger
TriggerDeclaration = EventTrigger | ScheduleTrigger


def event(*types: str, source: str = "", filter: str = "", slug: str = "") -> EventTrigger:
    """Wake on events by type glob ("customer.created", "invoice.*"), from any source or the one named."""
    return EventTrigger(types=types, source=source, filter=filter, slug=slug)


def webhook(source: str, *types: str, filter: str = "", slug: str = "") -> EventTrigger:
    """Wake on deliveries to /hooks/<source>/; no types means every type."""
    return EventTrigger(types=types or ("*",), source=source, filter=filter, slug=slug)


def cron(expression: str, *, tz: str = "UTC", missed: CatchUp = "latest", slug: str = "") -> CronTrigger:
    """Wake by crontab, such as "0 9 * * mon-fri", in the zone `tz`."""
    return CronTrigger(cron=expression, tz=tz, missed=missed, slug=slug)


def every(interval: str | float | timedelta, *, missed: CatchUp = "latest", slug: str = "") -> IntervalTrigger:
    """Wake every "30m" (or seconds, or a timedelta)."""
    return IntervalTrigger(every=parse_duration(interval), missed=missed, slug=slug)


def at(instant: str | datetime, *, missed: CatchUp = "latest", slug: str = "") -> ClockedTrigger:
    """Wake once, at an instant with an offset, such as "2026-12-01T09:00+01:00"; ValueError if it has none."""
    moment = datetime.fromisoformat(instant) if isinstance(instant, str) else instant
    if moment.tzinfo is None:
        raise ValueError(f"on.at({instant!r}): the instant has no offset; write such as 2026-12-01T09:00+01:00")
    return ClockedTrigger(at=moment, missed=missed, slug=slug)
