"""Events of a calendar as every kind of calendar gives them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from agents.guards.foreign_text import storable_text

CANCELLED = "cancelled"
LONGEST_TEXT = 10_000  # characters of a description
LONGEST = 1_000  # of any other text
MOST_PEOPLE = 100
UNCOMPARED = frozenset({"updated_at", "response"})  # may change while nothing of the event does
# What an erasure takes from the data of a recorded entry, with what is left there.
BLANK: Mapping[str, Any] = {
    "title": "",
    "description": "",
    "location": "",
    "link": "",
    "meeting": "",
    "organizer": {"name": "", "address": ""},
    "attendees": [],
}
IS_ERASED = "is_erased"  # in the data: its fields were erased


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An event, a series, or an occurrence that differs from its series. `data` is that of its events."""

    id: str  # of the calendar
    data: Mapping[str, Any]
    series: str = ""  # the id of its series
    over_at: datetime | None = None  # when its last occurrence ends, if that is known
    made_at: datetime | None = None
    is_plain: bool = False  # an occurrence as its series says: only its end is an event

    @property
    def key(self) -> str:
        return key_of(self.id)

    @property
    def is_cancelled(self) -> bool:
        return bool(self.data["status"] == CANCELLED)

    @property
    def digest(self) -> str:
        return digest_of(self.data)


@dataclass(frozen=True, kw_only=True)
class Occurrence:
    """A time at which an event starts. `id` is of the event and of the start that its series gives."""

    id: str
    starts_at: datetime
    data: Mapping[str, Any]

    @property
    def key(self) -> str:
        return key_of(self.id)


@dataclass(frozen=True, kw_only=True)
class View:
    """The starts that a look asks for: after `start`, before `until`."""

    start: datetime
    until: datetime


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a calendar has answered. `entries` None: nothing has changed; `occurrences` None: they were not asked for."""

    cursor: Any = None  # JSON, for the next look
    entries: Sequence[Entry] | None = None
    gone: Sequence[str] = ()  # ids that the calendar has named
    is_whole: bool = False  # what is not among the entries is gone
    renewed: Sequence[str] = ()  # ids of events and series: what is recorded of them and not among the entries is gone
    is_moved: bool = False  # another part of the calendar than before: what was made earlier is not new
    occurrences: Sequence[Occurrence] | None = None
    left_out: Mapping[str, str] | None = None  # ids of what cannot be read, and why


def key_of(id: str) -> str:
    return sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:32] if id else ""


def digest_of(data: Mapping[str, Any]) -> str:
    compared = {name: value for name, value in data.items() if name not in UNCOMPARED}
    return sha256(json.dumps(compared, sort_keys=True).encode()).hexdigest()[:32]


def data_of(
    *,
    id: str,
    starts_at: datetime,
    ends_at: datetime,
    zone: str,
    is_all_day: bool,
    people: Sequence[Mapping[str, str]] = (),
    organizer: Mapping[str, str] | None = None,
    **texts: Any,
) -> dict[str, Any]:
    """The data of an event. Times are in the event's own zone."""
    recurrence = [short(line) for line in texts.get("recurrence", ())][:20]
    original: datetime | None = texts.get("original")
    return {
        "id": short(id),
        "uid": short(texts.get("uid")),
        "series": short(texts.get("series")),
        "title": short(texts.get("title")),
        "description": storable_text(str(texts.get("description") or ""))[:LONGEST_TEXT],
        "location": short(texts.get("location")),
        "link": short(texts.get("link")),
        "meeting": short(texts.get("meeting")),
        "starts_at": starts_at.isoformat(),
        "ends_at": max(ends_at, starts_at).isoformat(),
        "original_starts_at": original.isoformat() if original else None,
        "zone": short(zone) or "UTC",
        "is_all_day": is_all_day,
        "status": short(texts.get("status")) or "confirmed",
        "recurrence": recurrence,
        "organizer": _person(organizer or {}),
        "attendees": [{**_person(one), "response": short(one.get("response"))} for one in people[:MOST_PEOPLE]],
        "response": short(texts.get("response")),
        "updated_at": short(texts.get("updated_at")) or None,
    }


def short(value: Any) -> str:
    return storable_text(str(value or ""))[:LONGEST]


def instant(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


def as_its_series_says(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data of an occurrence that is back at the start that its series gives."""
    original = instant(data["original_starts_at"])
    length: timedelta = instant(data["ends_at"]) - instant(data["starts_at"])
    return {
        **data,
        "starts_at": data["original_starts_at"],
        "ends_at": (original + length).isoformat(),
        "status": "confirmed",
    }


def _person(one: Mapping[str, str]) -> dict[str, str]:
    return {"name": short(one.get("name")), "address": short(one.get("address")).lower()}
