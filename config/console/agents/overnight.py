"""The page “What ran overnight”: what agents did since yesterday evening, as a timeline and in figures by agent."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString

from config.console.parts.axis import Axis
from config.console.parts.browser_zone import zone_shown
from config.console.parts.gauge import Gauge
from config.console.parts.links import link, listing
from config.console.parts.sections import Notice, Table
from config.console.parts.time_field import LocalTime
from runs.budgets.room import amount_in_words
from runs.db.sql import database_now
from runs.notifications.alarms import WAKEFUL
from triggers.exceptions import RuleError
from triggers.overnight.figures import MOST, SLOTS, Figures, Overnight, Slot, overnight
from triggers.overnight.night import Night, night_until
from triggers.schedules.clock import instant_of

LANES = 60  # agents on the timeline
SHOWN = 500  # agents in the table
LABELS = 12  # of the axis, at most
STEPS = [timedelta(hours=hours) for hours in (1, 2, 3, 6, 12, 24)]  # between two labels
INPUT = "%Y-%m-%dT%H:%M"
# What a slot shows: the first of these that it has.
KINDS = {
    "incidents": "an incident opened",
    "failed": "a run failed",
    "spoke": "a notification",
    "runs": "a run",
    "quiet": "a quiet gate alone",
}


class Span(forms.Form):
    """Times by the clock that the console shows."""

    to = LocalTime(required=False)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.fields["from"] = LocalTime(required=False)  # a keyword of Python


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A slot of the timeline in which something happened; positions in percent."""

    kind: str
    left: float
    width: float
    title: str


@dataclass(frozen=True, kw_only=True)
class Lane:
    agent: SafeString | str
    said: str
    marks: Sequence[Mark]


def overnight_page(request: HttpRequest) -> HttpResponse:
    """The page, for users who may view runs."""
    if not any(request.user.has_perm(f"runs.{verb}_run") for verb in ("view", "change")):
        raise PermissionDenied
    zone = zone_shown(request)
    night, fault = _asked(request, zone)
    found = overnight(night)
    request.current_app = admin.site.name
    context = {
        **admin.site.each_context(request),
        "title": "What ran overnight",
        "zone": zone.key,
        "start": night.start.astimezone(zone).strftime(INPUT),
        "end": night.end.astimezone(zone).strftime(INPUT),
        "notices": [*_wrong(fault), *_cut(found)],
        "gauges": _gauges(found.total),
        "hours": _hours(night, zone),
        "lanes": [_lane(one, night, zone) for one in found.agents[:LANES]],
        "is_cut": len(found.agents) > LANES,
        "kinds": list(KINDS.items()),
        "table": _table(found),
    }
    return TemplateResponse(request, "admin/console/overnight.html", context)


def _asked(request: HttpRequest, zone: ZoneInfo) -> tuple[Night, str]:
    """The requested time span; if that is invalid, the usual one and the error."""
    form = Span(request.GET)
    usual = night_until(database_now(), settings.WAKEFUL_ZONE)
    if not form.is_valid():
        return usual, "; ".join(f"{name}: {' '.join(map(str, errors))}" for name, errors in form.errors.items())
    start, end = (_instant(form.cleaned_data[name], zone) for name in ("from", "to"))
    try:
        night = night_until(end or usual.end, settings.WAKEFUL_ZONE)
        return (Night(start=start, end=night.end) if start else night), ""
    except RuleError as error:
        return usual, f"{error.field}: {error}"


def _instant(at: datetime | None, zone: ZoneInfo) -> datetime | None:
    return at if at is None or at.tzinfo else instant_of(at, zone)


def _wrong(fault: str) -> list[Notice]:
    return (
        [Notice(text=f"This is the usual time span. The requested one is not valid: {fault}.", level="warning")]
        if fault
        else []
    )


def _cut(found: Overnight) -> list[Notice]:
    if not found.cut:
        return []
    text = (
        f"Too low, because only the last {MOST:,} rows are counted: {', '.join(found.cut)}. Choose a shorter time span."
    )
    return [Notice(text=text, level="warning")]


def _gauges(total: Figures) -> list[Gauge]:
    sent = total.deliveries
    lost = sent["failed"] + sent["unknown"]
    spoke = f"{sent['sent']:,} messages sent" + (f", {lost:,} not sent" if lost else "")
    return [
        Gauge(label="Woken", value=f"{total.woken:,}", note=f"{total.runs:,} runs"),
        Gauge(label="Quiet", value=f"{total.quiet:,}", note="gates, without a run"),
        Gauge(label="Spoke", value=f"{total.spoke:,}", note=spoke, level="bad" if lost else ""),
        Gauge(
            label="Suppressed",
            value=f"{sent['suppressed']:,}",
            note=f"{sent['held']:,} held, {sent['merged']:,} merged into others",
        ),
        Gauge(label="Spent", value=amount_in_words("usd", total.usd), note=f"{total.requests:,} model requests"),
        Gauge(label="Failed", value=f"{total.failed:,}", note="runs", level="bad" if total.failed else ""),
        Gauge(
            label="Incidents",
            value=f"{total.incidents:,}",
            note="opened",
            level="bad" if total.incidents else "",
            url=listing("runs_incident"),
        ),
    ]


# The timeline


def _hours(night: Night, zone: ZoneInfo) -> list[tuple[float, str]]:
    """Labels of the axis, at full hours."""

    def local(at: datetime) -> datetime:
        return at.astimezone(zone)

    axis = Axis(night.start, night.end)
    step = next((step for step in STEPS if (night.end - night.start) / step <= LABELS), STEPS[-1])
    hours = step // timedelta(hours=1)
    first = night.start.replace(minute=0, second=0, microsecond=0)
    count = (night.end - first) // timedelta(hours=1) + 1
    every = [first + timedelta(hours=number) for number in range(count)]
    inside = [at for at in every if night.start <= at < night.end and local(at).hour % hours == 0]
    return [(axis.at(at), _label(local(at))) for at in inside]


def _label(local: datetime) -> str:
    """Midnight is named after its day."""
    return f"{local:%a %-d}" if local.time() == time() else f"{local:%H:%M}"


def _lane(one: Figures, night: Night, zone: ZoneInfo) -> Lane:
    marks = [_mark(number, slot, night, zone) for number, slot in sorted(one.slots.items())]
    return Lane(agent=_agent(one), said=f"{one.woken:,} woken, {one.spoke:,} spoke", marks=marks)


def _mark(number: int, slot: Slot, night: Night, zone: ZoneInfo) -> Mark:
    width = (night.end - night.start) / SLOTS
    start, end = ((night.start + width * edge).astimezone(zone) for edge in (number, number + 1))
    said = ", ".join(f"{getattr(slot, kind)} {kind}" for kind in KINDS if getattr(slot, kind))
    kind = next((kind for kind in KINDS if getattr(slot, kind)), "quiet")
    title = f"{start:%H:%M}–{end:%H:%M}: {said}"
    return Mark(kind=kind, left=100 * number / SLOTS, width=100 / SLOTS, title=title)


# The table


def _table(found: Overnight) -> Table:
    return Table(
        title="By agent",
        headers=(
            "Agent",
            "Woken",
            "Quiet",
            "Failed",
            "Incidents",
            "Spoke",
            "Sent",
            "Suppressed",
            "Held",
            "Merged",
            "Not sent",
            "Requests",
            "Spent",
        ),
        rows=[_row(one) for one in found.agents[:SHOWN]],
        empty="No agent woke.",
        note=f"The first {SHOWN}." if len(found.agents) > SHOWN else "",
    )


def _row(one: Figures) -> tuple[Any, ...]:
    sent = one.deliveries
    spent = amount_in_words("usd", one.usd) + (
        f", and {one.unpriced:,} requests of unknown price" if one.unpriced else ""
    )
    counts = (
        one.woken,
        one.quiet,
        one.failed,
        one.incidents,
        one.spoke,
        *(sent[status] for status in ("sent", "suppressed", "held", "merged")),
    )
    numbers = (*counts, sent["failed"] + sent["unknown"], one.requests)
    return _agent(one), *(f"{number:,}" if number else "–" for number in numbers), spent if one.requests else "–"


def _agent(one: Figures) -> SafeString | str:
    return "Wakeful itself" if one.agent == WAKEFUL else link(listing("runs_run", agent=one.agent), one.agent)
