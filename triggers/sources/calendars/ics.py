"""A calendar at an address: iCalendar (RFC 5545), as every calendar can publish itself."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import available_timezones

from runs.processes import isolation
from triggers.sources.calendars.entry import Entry, Look, Occurrence, View, data_of, instant
from triggers.sources.calendars.reader import Calendar, CalendarReader, CalendarSettings, cases
from triggers.sources.kind import register
from triggers.sources.polling.conditional_get import AddressSettings, Asking, validators_of
from triggers.sources.runner import Assignment, Reader, SourceError
from triggers.sources.settings import setting
from triggers.sources.switches.terms import zones

MOST_BYTES = 16 * 2**20
SECONDS = 20  # of processor time, to parse one
PARSED_WITHIN = 40.0  # seconds of wall-clock time, because the machine may be busy
ACCEPT = "text/calendar, */*;q=0.5"
PROCESS = "triggers.sources.calendars.ics_parser"


def zone(value: str) -> str:
    return "" if not value or value in available_timezones() else "must be an IANA name, such as Europe/Vienna"


@dataclass(frozen=True, kw_only=True)
class IcsSettings(AddressSettings, CalendarSettings):
    """Where the calendar is."""

    zone: str = setting(
        "",
        "Zone",
        "An IANA name, such as Europe/Vienna, for whole days and times that name no zone. Empty: the calendar's, or UTC.",
        check=zone,
        suggest=zones,
    )


@register
class Ics(Calendar[IcsSettings]):
    name = "ics"
    label = "Calendar (.ics)"
    help_text = "Polls a calendar at an address: events made, changed or cancelled, and those about to start."
    settings_class = IcsSettings
    secret_label = "Token"  # noqa: S105  (a label)
    cases = cases("url", more=("zone", "secret_header", "secret_prefix"))
    setup = (
        "Copy the address of the calendar in iCal format: of Google under *Settings* → the calendar → *Secret address in iCal format*, of "
        "Outlook under *Calendar* → *Shared calendars* → *Publish a calendar* → ICS. Write https:// for webcal://.",
        "Everyone who may see sources can read the address, and the calendar with it. Use a connection where it must stay secret.",
    )
    docs_url = "https://www.rfc-editor.org/rfc/rfc5545"

    def connect(self, assignment: Assignment[IcsSettings]) -> Reader:
        return IcsReader(assignment, target=assignment.settings.url)


class IcsReader(CalendarReader):
    @property
    def zone(self) -> str:
        return str(self.settings.zone)

    def look(self, cursor: Any, view: View | None, now: datetime) -> Look:
        asking = Asking(self.settings, self.assignment.secret, most_bytes=MOST_BYTES, accept=ACCEPT)
        # What starts is computed from the whole, also if that has not changed.
        answer = asking.ask(self.settings.url, None if view else cursor)
        if answer is None:
            return Look(cursor=cursor)
        view = view or (self.whole_view(now) if self.wants_starts() else None)
        span = [view.start.isoformat(), view.until.isoformat()] if view else None
        asked = {"now": now.isoformat(), "view": span, "zone": self.settings.zone}
        found = parsed(answer.body, asked, self.settings.pause)
        return Look(
            cursor=validators_of(answer),
            entries=[entry_of(one) for one in found["entries"]],
            is_whole=True,
            occurrences=[occurrence_of(one) for one in found["occurrences"]] if view else None,
            left_out=found["left_out"],
        )


def parsed(body: bytes, asked: Mapping[str, Any], pause: timedelta) -> Mapping[str, Any]:
    """The answer of `ics_parser`. Raises SourceError."""
    found = in_its_process(body, asked)
    if found is None:
        raise SourceError(
            "The calendar cannot be parsed within the limits of time and memory.",
            remedy="Publish a shorter calendar, or disable the source: some calendars are made to cost time.",
            retry_after=pause,
        )
    if error := found.get("error"):
        raise SourceError(error, remedy=found["remedy"], retry_after=pause)
    return found


def in_its_process(body: bytes, asked: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The answer of `ics_parser`. None: it has reached a limit."""
    try:
        done = subprocess.run(
            isolation.command_of(PROCESS, nice=10, seconds=SECONDS),
            input=json.dumps(asked).encode() + b"\n" + body,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=isolation.environment(),
            timeout=PARSED_WITHIN,
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        return None
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def entry_of(one: Mapping[str, Any]) -> Entry:
    over_at = one["over_at"]
    return Entry(
        id=one["id"], series=one["series"], over_at=instant(over_at) if over_at else None, data=_data(one["data"])
    )


def occurrence_of(one: Mapping[str, Any]) -> Occurrence:
    data = _data(one["data"])
    return Occurrence(id=one["id"], starts_at=instant(data["starts_at"]), data=data)


def _data(found: Mapping[str, Any]) -> dict[str, Any]:
    times = {name: datetime.fromisoformat(found[name]) for name in ("starts_at", "ends_at")}
    original = datetime.fromisoformat(found["original"]) if found.get("original") else None
    return data_of(**{**found, **times, "original": original})
