"""The events of what has changed in a calendar since it was last recorded."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from triggers.models import CalendarEntry
from triggers.sources.calendars.entry import (
    BLANK,
    CANCELLED,
    IS_ERASED,
    UNCOMPARED,
    Entry,
    Look,
    as_its_series_says,
    instant,
    key_of,
    short,
)
from triggers.sources.http.payload import Payload
from triggers.sources.runner import BATCH, Received
from triggers.sources.webhooks.naming import is_name

CREATED, CHANGED, ENDED = "calendar.created", "calendar.changed", "calendar.cancelled"


@dataclass(kw_only=True)
class Differences:
    """The events, and the changes of the recorded entries that go with them. `has_more`: the same look again gives the rest."""

    messages: list[Received] = field(default_factory=list)
    put: list[CalendarEntry] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)  # keys
    has_more: bool = False


@dataclass(frozen=True, kw_only=True)
class Comparing:
    """How a look is compared. `begins`: it is the first one; `is_first`: and what is there was not made now; `is_blank`: nothing of this
    calendar is recorded. `since`: when the source was looked at first."""

    source_id: UUID
    now: datetime
    since: datetime
    begins: bool
    is_first: bool
    is_blank: bool
    revision: str  # makes a change that comes again another event


def compare(look: Look, by: Comparing) -> Differences:
    """What the look changes of the recorded entries; at most BATCH events."""
    known = {} if by.is_blank else _known(by.source_id, look)
    renamed = _renamed(known, look)
    found = Differences()
    # An id that comes twice is of one entry: its last state counts.
    for entry in {entry.key: entry for entry in look.entries or ()}.values():
        if len(found.messages) >= BATCH:
            found.has_more = True
            return found
        if entry.key in renamed:
            _rename(entry, renamed[entry.key], by, found)
        else:
            _compare(entry, known, look, by, found)
    followed = {row.key for row in renamed.values()}
    for row, is_named in _gone(known, look):
        if row.key in followed:
            continue
        if len(found.messages) >= BATCH:
            found.has_more = True
            return found
        _leave(row, is_named, known, look, by, found)
    return found


def write(source_id: UUID, found: Differences, now: datetime, *, clear: bool) -> None:
    """In the transaction of the events. `clear`: what is recorded is of another calendar."""
    rows = CalendarEntry.objects.filter(source_id=source_id)
    if clear:
        rows.delete()
    elif found.drop:
        rows.filter(key__in=found.drop).delete()
    rows.filter(over_at__lt=now - CalendarEntry.KEPT).delete()
    CalendarEntry.objects.bulk_create(
        found.put,
        update_conflicts=True,
        unique_fields=["source", "key"],
        update_fields=["series", "digest", "data", "over_at"],
    )


def _known(source_id: UUID, look: Look) -> dict[str, CalendarEntry]:
    rows = CalendarEntry.objects.filter(source_id=source_id)
    if not look.is_whole:
        entries = look.entries or ()
        keys = {key for entry in entries for key in (entry.key, key_of(entry.series))}
        keys |= set(map(key_of, [*look.gone, *look.renewed]))
        rows = rows.filter(key__in=keys) | rows.filter(series__in=keys)
    found = {row.key: row for row in rows}
    missing = {row.series for row in found.values() if row.series} - found.keys()
    return found | {row.key: row for row in CalendarEntry.objects.filter(source_id=source_id, key__in=missing)}


def _renamed(known: Mapping[str, CalendarEntry], look: Look) -> dict[str, CalendarEntry]:
    """What is recorded of events that have another id now, by the key of that id: at CalDAV it is an address, which may change."""
    new = [entry for entry in look.entries or () if entry.key not in known]
    gone = {name: row for row, _ in _gone(known, look) if (name := _name_of(row.data))} if new else {}
    return {entry.key: gone[name] for entry in new if (name := _name_of(entry.data)) in gone}


def _name_of(data: Mapping[str, Any]) -> tuple[str, str | None] | None:
    """The same under each id. None: an occurrence as its series says shares the UID with all others."""
    is_plain = data["series"] and not data["original_starts_at"]
    return None if is_plain or not data["uid"] else (data["uid"], data["original_starts_at"])


def _rename(entry: Entry, old: CalendarEntry, by: Comparing, found: Differences) -> None:
    found.put.append(_row(entry, by.source_id))
    found.drop.append(old.key)
    if entry.is_cancelled:
        if old.data["status"] != CANCELLED:
            found.messages.append(_event(ENDED, entry.key, entry.digest, {**old.data, "status": CANCELLED}, by))
    elif set(_names(entry.data, old.data)) - {"id", "series", *UNCOMPARED}:
        found.messages.append(_changed(entry.key, entry.digest, entry.data, old.data, by))


def _compare(entry: Entry, known: Mapping[str, CalendarEntry], look: Look, by: Comparing, found: Differences) -> None:
    old = known.get(entry.key)
    is_over = entry.over_at is not None and entry.over_at < by.now
    if old is None and is_over or (old is not None and old.digest == entry.digest):
        return
    found.put.append(_row(entry, by.source_id))
    is_old = by.is_first or (look.is_moved and not by.begins and entry.made_at is not None and entry.made_at < by.since)
    if old is None:
        # What is taken out of a series that is new was never there.
        is_hole = entry.is_cancelled and entry.series and key_of(entry.series) not in known
        if not (is_old or entry.is_plain or is_hole):
            found.messages.append(_news(entry, known, by))
    elif entry.is_cancelled:
        if old.data["status"] != CANCELLED:
            found.messages.append(_event(ENDED, entry.key, entry.digest, {**old.data, "status": CANCELLED}, by))
    elif not entry.is_plain:
        found.messages.append(_changed(entry.key, entry.digest, entry.data, old.data, by))
    elif old.data["original_starts_at"]:  # it differed; where it is as its series says, the change is one of the series
        data = _in_words_of(known.get(key_of(entry.series)), entry.data)
        found.messages.append(_changed(entry.key, entry.digest, data, old.data, by))


def _news(entry: Entry, known: Mapping[str, CalendarEntry], by: Comparing) -> Received:
    if entry.is_cancelled:
        data = _in_words_of(known.get(key_of(entry.series)), entry.data)
        return _event(ENDED, entry.key, entry.digest, data, by)
    if not entry.series:
        return _event(CREATED, entry.key, entry.digest, entry.data, by)
    # An occurrence that differs is no new event: its series is one of old.
    before = {**entry.data, "starts_at": entry.data["original_starts_at"] or entry.data["starts_at"]}
    return _changed(entry.key, entry.digest, entry.data, before, by)


def _gone(known: Mapping[str, CalendarEntry], look: Look) -> Iterator[tuple[CalendarEntry, bool]]:
    """The recorded entries that are gone, and whether the calendar has named them."""
    named = {key_of(id) for id in look.gone}
    there = {entry.key for entry in look.entries or ()}
    unread = set(map(short, look.left_out or ()))
    followed = named | set(map(key_of, look.renewed))
    for key, row in known.items():
        if key in named:
            yield row, True
        elif (
            key not in there
            and (look.is_whole or not followed.isdisjoint((key, row.series)))
            and not unread & {row.data["id"], row.data["uid"], row.data["series"]}
        ):
            yield row, False


def _leave(
    row: CalendarEntry,
    is_named: bool,
    known: Mapping[str, CalendarEntry],
    look: Look,
    by: Comparing,
    found: Differences,
) -> None:
    found.drop.append(row.key)
    is_over = row.over_at is not None and row.over_at < by.now
    if is_over or row.data["status"] == CANCELLED or _is_beyond(row, known, look, by):
        return
    if _ends_with_series(row, known, look) or _changes_with_series(row, known, look) or _has_moved(row, look):
        return
    if row.data["original_starts_at"] and not is_named:
        back = as_its_series_says(row.data)
        found.messages.append(_changed(row.key, f"back:{row.digest}", back, row.data, by))
    else:
        data = {**_in_words_of(known.get(row.series), row.data), "status": CANCELLED}
        found.messages.append(_event(ENDED, row.key, row.digest, data, by))


def _in_words_of(series: CalendarEntry | None, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """An occurrence that is cancelled may come with its time alone; the rest is that of its series."""
    if series is None or data["title"]:
        return data
    start = instant(data["starts_at"])
    length = instant(series.data["ends_at"]) - instant(series.data["starts_at"])
    own = ("id", "series", "starts_at", "original_starts_at", "status")
    times = {"ends_at": (start + length).isoformat(), "recurrence": []}
    return {**series.data, **{name: data[name] for name in own}, **times}


def _has_moved(row: CalendarEntry, look: Look) -> bool:
    """Whether the occurrence has become one that differs, which may have another id."""
    if not row.series:
        return False
    starts_at = instant(row.data["original_starts_at"] or row.data["starts_at"])
    others = [entry.data["original_starts_at"] for entry in look.entries or () if key_of(entry.series) == row.series]
    return any(original is not None and instant(original) == starts_at for original in others)


def _ends_with_series(row: CalendarEntry, known: Mapping[str, CalendarEntry], look: Look) -> bool:
    if not row.series:
        return False
    if row.series in {key_of(id) for id in look.gone}:
        return True
    there: Sequence[Entry] = [entry for entry in look.entries or () if entry.key == row.series]
    is_given = look.is_whole or row.series in map(key_of, look.renewed)
    return (is_given and not there) or any(entry.is_cancelled for entry in there)


def _changes_with_series(row: CalendarEntry, known: Mapping[str, CalendarEntry], look: Look) -> bool:
    """Whether it is an occurrence as its series said, and the series has changed."""
    series = known.get(row.series)
    if series is None or row.data["original_starts_at"]:
        return False
    return any(entry.key == row.series and entry.digest != series.digest for entry in look.entries or ())


def _is_beyond(row: CalendarEntry, known: Mapping[str, CalendarEntry], look: Look, by: Comparing) -> bool:
    """Whether it is a series that had nothing more in the part of the calendar that was looked at: its next occurrence is later."""
    if not (look.is_moved and row.data["recurrence"]):
        return False
    others = [other for other in known.values() if other.series == row.key and other.data["status"] != CANCELLED]
    return all(other.over_at is not None and other.over_at < by.now for other in others)


def _changed(key: str, digest: str, data: Mapping[str, Any], old: Mapping[str, Any], by: Comparing) -> Received:
    names = _names(data, old)
    before = {name: old.get(name) for name in names if name != "description"}
    return _event(CHANGED, key, digest, {**data, "changed": sorted(names), "before": before}, by)


def _names(data: Mapping[str, Any], old: Mapping[str, Any]) -> list[str]:
    """Those of the fields that differ, as far as they are known."""
    unknown = {"updated_at", IS_ERASED, *(BLANK if old.get(IS_ERASED) else ())}
    return [name for name, value in data.items() if name not in unknown and old.get(name) != value]


def _event(type: str, key: str, digest: str, data: Mapping[str, Any], by: Comparing) -> Received:
    return Received(
        id=f"{type}/{key}/{digest}/{by.revision}",
        type=type,
        subject=data["organizer"]["address"] if is_name(data["organizer"]["address"]) else "",
        time=by.now,
        payload=Payload(data=dict(data)),
    )


def _row(entry: Entry, source_id: UUID) -> CalendarEntry:
    over_at = entry.over_at
    if entry.is_cancelled and over_at is None:
        over_at = instant(entry.data["ends_at"])
    return CalendarEntry(
        source_id=source_id,
        key=entry.key,
        series=key_of(entry.series),
        digest=entry.digest,
        data=dict(entry.data),
        over_at=over_at,
    )
