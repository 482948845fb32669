"""A switch as the dispatcher knows it: which events it waits for, and how long."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import UUID, uuid5

from agents.kernel.durations import parse_duration
from runs.ports import Deadlines, ports
from triggers.matching.expressions.cel import compile_each
from triggers.matching.index import Rule

ABSENCE, PING = "absence", "ping"  # kinds of sources that are switches
KINDS = [ABSENCE, PING]
OPENED, CLOSED = "absence.opened", "absence.closed"
PINGS = "ping.*"
SUCCESS, START, FAIL, LOG = "ping.success", "ping.start", "ping.fail", "ping.log"

WITHIN, PERIOD, GRACE = "1h", "1d", "1h"  # defaults of settings; GRACE is the default of pings
MOST_KEYS = 10_000
DAY = timedelta(days=1)
SHAPE = ("types", "source", "filter", "of_types", "of_source", "of_filter", "key", "of_key")
# Why a timer is open, in words.
REASONS = {
    "absent": "it did not come in time",
    "failed": "a ping reported that the job failed",
    "overran": "a /start had no end within the grace",
}


@dataclass(frozen=True, kw_only=True)
class Switch:
    """`seen` matches the event that it waits for; `started` the event that begins the time. None: the awaited event itself does,
    or the switch is one of pings.

    With `deadlines` it has a time of day to come by, instead of a time `within` which. If no event begins the time, each deadline
    expects the event by itself, of each of the `keys`."""

    id: UUID
    slug: str
    seen: Rule
    started: Rule | None = None
    within: timedelta
    grace: timedelta = timedelta()
    active_hours: str = ""
    active_zone: str = ""
    deadlines: Deadlines | None = None
    keys: tuple[str, ...] = ()
    most_keys: int = MOST_KEYS
    is_ping: bool = False
    shape: str = ""

    @property
    def has_keys(self) -> bool:
        return bool(self.started or self.seen.key)

    @property
    def rules(self) -> list[Rule]:
        return [self.seen, *([self.started] if self.started else [])]

    @property
    def recurring(self) -> Deadlines | None:
        """The deadlines, if each expects the event by itself."""
        return None if self.started else self.deadlines

    @cached_property
    def expected(self) -> frozenset[str]:
        """The keys that each deadline expects."""
        return frozenset(self.keys or ("",)) if self.recurring else frozenset()

    @property
    def terms(self) -> str:
        if self.deadlines:
            return f"{self.deadlines.words} {self.grace.total_seconds()} {json.dumps(self.keys)}"
        return f"{self.within.total_seconds()} {self.grace.total_seconds()} {self.active_zone} {self.active_hours}"

    def due(self, since: datetime, arrived_at: datetime | None = None) -> datetime:
        """When the absence begins. The grace counts from the arrival of a late event."""
        until = since + self.within
        if self.deadlines:
            _, until = self.deadlines.ending_after(since)
        elif self.active_hours:
            until = ports.active_time(since, self.within, self.active_hours, self.active_zone)
        return max(until, arrived_at or until) + self.grace

    @property
    def forgets_after(self) -> timedelta:
        """How long a key that awaits no event is kept, because events may arrive in another order."""
        return (DAY if self.deadlines else self.within) + self.grace


def switch_of(id: UUID, slug: str, kind: str, settings: Mapping[str, Any]) -> Switch:
    """The switch of a source's settings. Raises ValueError if they make no sense."""
    common = {
        "id": id,
        "slug": slug,
        "active_hours": settings.get("active_hours", ""),
        "active_zone": settings.get("active_zone", ""),
    }
    if kind == PING:
        return Switch(
            seen=_rule(id, slug, PINGS, slug),
            within=parse_duration(settings.get("every") or PERIOD),
            grace=parse_duration(settings.get("grace") or GRACE),
            is_ping=True,
            **common,
        )
    key, of_types = settings.get("key", ""), settings.get("of_types", "")
    started = None
    if of_types:
        of_key = settings.get("of_key", "") or key
        filter = settings.get("of_filter", "")
        started = _rule(uuid5(id, "of"), slug, of_types, settings.get("of_source", ""), filter, of_key)
    deadlines = deadlines_of(settings) if settings.get("by") else None
    shape = [settings.get(name, "") for name in SHAPE]
    return Switch(
        seen=_rule(id, slug, settings.get("types", ""), settings.get("source", ""), settings.get("filter", ""), key),
        started=started,
        within=parse_duration(settings.get("within") or WITHIN),
        grace=parse_duration(settings.get("grace") or timedelta()),
        deadlines=deadlines,
        keys=keys_of(settings.get("keys", "")),
        most_keys=settings.get("most_keys", MOST_KEYS),
        shape=json.dumps([*shape, "deadlines"] if deadlines else shape),
        **common,
    )


def deadlines_of(settings: Mapping[str, Any]) -> Deadlines:
    """Raises ValueError."""
    by, since, days, zone = (settings.get(name, "") for name in ("by", "since", "days", "active_zone"))
    return ports.deadlines(by, since, days, zone)


def keys_of(text: str) -> tuple[str, ...]:
    """The listed keys, each once."""
    return tuple(dict.fromkeys(key for part in text.split(",") if (key := part.strip())))


def _rule(id: UUID, slug: str, types: str, source: str, filter: str = "", key: str = "") -> Rule:
    compiled = compile_each((filter, key))
    return Rule(
        id=id,
        slug=slug,
        agent="",
        source=source,
        types=tuple(types.split()),
        filter=filter,
        key=key,
        compiled=compiled,
        has_bare_key=True,
    )
