"""The page “What will wake next”: a list, a timeline of the next 24 hours, and a calendar of a month."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.registry import all_agents
from config.console.parts.axis import Axis
from config.console.parts.browser_zone import zone_shown
from config.console.parts.html import format_html, shortened
from config.console.parts.links import link, page, run_link
from config.console.parts.moments import appointment, moment
from config.console.parts.sections import Table
from runs.db.sql import database_now
from triggers.models import Schedule
from triggers.schedules.clock import instant_of
from triggers.upcoming.days import Day, Named, days_ahead
from triggers.upcoming.entry import BY_CLOCK, MEETING, OF_RUNS, Coming, kinds_for
from triggers.upcoming.listing import ahead

VIEWS = {"list": "List", "line": "Next 24 hours", "month": "Calendar"}
SPANS = {1: "24 hours", 7: "7 days", 30: "30 days", 366: "a year"}
USUAL = 7
SHOWN, MOST = 100, 500
LANES = 60
NAMES = 4  # shown on a day of the month
NAMED = 80  # characters of a reminder, or of the title of a meeting
FURTHEST = timedelta(days=36_525)  # the last month that can be shown
HOURS = 3  # between two lines of the axis
EDITED = 1000  # count edited schedules up to this number
LATE = SafeString('<span class="console-dot console-dot-warning">late</span> ')
WORDS = {
    "schedule": "schedule",
    "heartbeat": "heartbeat",
    "reminder": "reminder",
    "task": "ordinary task",
    "wake": "wake set by a run",
    "window": "end of a debounce or batch",
    MEETING: "start of a meeting",
    "timer": "timer of a waiting run",
    "retry": "retry",
    "start": "start delayed by a rate limit",
}


class Filter(forms.Form):
    """The filters of the page; invalid values are ignored."""

    view = forms.ChoiceField(choices=list(VIEWS.items()), required=False)
    kind = forms.ChoiceField(choices=[("", "any kind"), *WORDS.items()], required=False)
    agent = forms.CharField(required=False)
    days = forms.ChoiceField(choices=list(SPANS.items()), required=False)
    limit = forms.ChoiceField(choices=[(SHOWN, SHOWN), (MOST, MOST)], required=False)
    day = forms.DateField(required=False)
    month = forms.DateField(required=False, input_formats=["%Y-%m"])


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The requested filters and zone, limited to the kinds that the user may see."""

    view: str
    kind: str
    agent: str
    days: int
    limit: int
    day: date | None
    month: date
    zone: ZoneInfo
    allowed: tuple[str, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(kind for kind in self.allowed if self.kind in ("", kind))

    def url(self, **changes: Any) -> str:
        """The URL of the page with other filters."""
        said: dict[str, Any] = {"view": self.view, "kind": self.kind, "agent": self.agent, "days": self.days, **changes}
        usual = {"view": "list", "days": USUAL}
        query = {name: value for name, value in said.items() if value and value != usual.get(name)}
        return reverse("coming") + (f"?{urlencode(query)}" if query else "")


def coming(request: HttpRequest) -> HttpResponse:
    """The page, for users who may view schedules; wakes that runs have set are shown to users who may view runs."""
    asked = _asked(request)
    now = database_now()
    shown = {"line": _line, "month": _month}.get(asked.view, _list)(asked, now)
    request.current_app = admin.site.name
    context = {
        **admin.site.each_context(request),
        "title": "What will wake next",
        "asked": asked,
        "views": [(name, words, asked.url(view=name)) for name, words in VIEWS.items()],
        "kinds": [("", "any kind"), *((kind, WORDS[kind]) for kind in asked.allowed)],
        "agents": sorted({agent.name for agent in all_agents()} | {asked.agent} - {""}),
        "spans": list(SPANS.items()),
        "edited": Schedule.objects.filter(stale=True)[:EDITED].count(),
        **shown,
    }
    return TemplateResponse(request, "admin/console/coming.html", context)


def wakes_of(request: HttpRequest, agent: str, count: int) -> Table:
    """The next few wakes of an agent, for its page."""
    now = database_now()
    found = ahead(now, now + timedelta(days=USUAL), count, kinds=allowed_kinds(request), agent=agent)
    return Table(
        title="Its next wakes",
        headers=("When", "What", "Why", "Later"),
        rows=[_row(one, now) for one in found],
        empty=f"None within {SPANS[USUAL]}.",
        is_cards=True,
    )


def _asked(request: HttpRequest) -> Asked:
    if not any(request.user.has_perm(f"triggers.{verb}_schedule") for verb in ("view", "change")):
        raise PermissionDenied
    form = Filter(request.GET)
    form.is_valid()
    said = form.cleaned_data  # without invalid values
    zone = zone_shown(request)
    today = datetime.now(zone).date()
    day, month = said.get("day"), said.get("month") or today
    return Asked(
        view=said.get("view") or "list",
        kind=said.get("kind", ""),
        agent=said.get("agent", ""),
        days=int(said.get("days") or USUAL),
        limit=int(said.get("limit") or SHOWN),
        day=day if day and abs(day - today) < FURTHEST else None,
        month=(month if abs(month - today) < FURTHEST else today).replace(day=1),
        zone=zone,
        allowed=allowed_kinds(request),
    )


def allowed_kinds(request: HttpRequest) -> tuple[str, ...]:
    return kinds_for(request.user.has_perm)


# The list


def _list(asked: Asked, now: datetime) -> dict[str, Any]:
    start, until = (now, now + timedelta(days=asked.days)) if asked.day is None else _bounds(asked.day, asked.zone, now)
    found = ahead(start, until, asked.limit, kinds=asked.kinds, agent=asked.agent) if until > start else []
    return {
        "table": Table(
            title=f"On {asked.day:%A %-d %B %Y}" if asked.day else f"Within {SPANS[asked.days]}",
            headers=("When", "What", "Why", "Later"),
            rows=[_row(one, now) for one in found],
            empty="Nothing is upcoming.",
            note=_cut(len(found), asked),
            is_cards=True,
        ),
        "more": asked.url(limit=MOST, day=asked.day) if len(found) == asked.limit < MOST else "",
    }


def _cut(count: int, asked: Asked) -> str:
    return f"The first {count}, with each schedule listed once; there may be more." if count == asked.limit else ""


def _bounds(day: date, zone: ZoneInfo, now: datetime) -> tuple[datetime, datetime]:
    start, until = (
        instant_of(datetime.combine(one, datetime.min.time()), zone) for one in (day, day + timedelta(days=1))
    )
    return max(start, now), until


def _row(one: Coming, now: datetime) -> tuple[Any, ...]:
    late = LATE if one.at < now else ""
    nominal = one.nominal and one.nominal != one.at
    named = format_html(' <span class="moment-ago">for {}</span>', appointment(one.nominal)) if nominal else ""  # type: ignore[arg-type]
    what = format_html(
        '<span class="coming-kind coming-{}">{}</span><span class="coming-of">{}</span>',
        one.kind,
        subject_of(one),
        WORDS[one.kind] if one.agent in ("", one.name) else f"{WORDS[one.kind]} · {one.agent}",
    )
    why = "" if one.kind == "reminder" else one.why
    return format_html("{}{}{}", late, moment(one.at), named), what, why, _again(one)


def _again(one: Coming) -> SafeString | str:
    if one.is_endless:
        return f"more than {len(one.later)} times more"
    if not one.later:
        return ""
    times = "once more," if len(one.later) == 1 else f"{len(one.later)} times more, until"
    return format_html("{} {}", times, appointment(one.later[-1]))


def subject_of(one: Coming) -> SafeString | str:
    if one.kind == "reminder":
        return link(page("triggers_schedule", one.schedule_id), shortened(one.why, NAMED))
    if one.kind in BY_CLOCK:
        return link(page("triggers_schedule", one.schedule_id), one.name) if one.kind != "task" else one.name
    if one.kind in ("timer", "retry", "start") and one.run_id:
        return format_html("{} of run {}", one.name, run_link(one.run_id))
    if one.source_id:
        return link(page("triggers_source", one.source_id), shortened(one.name, NAMED))
    return link(page("triggers_trigger", one.trigger_id), one.name) if one.trigger else one.name


# The next 24 hours


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A wake on the timeline, or a band if there are too many to draw; positions in percent."""

    left: float
    width: float
    title: str


@dataclass(frozen=True, kw_only=True)
class Lane:
    what: SafeString | str
    kind: str
    why: str
    marks: Sequence[Mark]


def _line(asked: Asked, now: datetime) -> dict[str, Any]:
    end = now + timedelta(days=1)
    found = ahead(now, end, LANES + 1, kinds=asked.kinds, agent=asked.agent)
    axis = Axis(now, end)
    return {
        "hours": [(axis.at(hour), f"{hour:%H:%M}") for hour in _hours(now, end, asked.zone)],
        "lanes": [_lane(one, axis, asked.zone) for one in found[:LANES]],
        "is_cut": len(found) > LANES,
    }


def _hours(start: datetime, end: datetime, zone: ZoneInfo) -> list[datetime]:
    """Full hours in the given zone."""
    hour = start.astimezone(zone).replace(minute=0, second=0, microsecond=0)
    every = (hour.astimezone(ZoneInfo("UTC")) + timedelta(hours=number) for number in range(1, 26))
    local = [one.astimezone(zone) for one in every if one < end - timedelta(minutes=30)]
    return [one for one in local if one.hour % HOURS == 0]


def _lane(one: Coming, axis: Axis, zone: ZoneInfo) -> Lane:
    if one.is_endless:
        left = axis.at(one.at)
        marks = [Mark(left=left, width=round(100 - left, 3), title=f"more than {len(one.later)} times {one.name}")]
    else:
        times = (one.at, *one.later)
        marks = [Mark(left=axis.at(at), width=0, title=f"{at.astimezone(zone):%H:%M:%S} {one.name}") for at in times]
    why = WORDS[one.kind] if one.kind == "reminder" else one.why
    return Lane(what=subject_of(one), kind=one.kind, why=why, marks=marks)


# The month


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A day of the calendar; `count` is empty if the day is past or nothing is upcoming."""

    date: date
    count: str
    names: Sequence[tuple[str, str]]  # kind and name
    others: int
    url: str
    is_today: bool
    is_of_month: bool


def _month(asked: Asked, now: datetime) -> dict[str, Any]:
    today = now.astimezone(asked.zone).date()
    # Past weeks have nothing upcoming and are left out.
    begun = max(asked.month, today) if asked.month == today.replace(day=1) else asked.month
    first = begun - timedelta(days=begun.weekday())
    following = (asked.month + timedelta(days=32)).replace(day=1)
    last = following + timedelta(days=(-following.weekday()) % 7 - 1)
    days = days_ahead(first, last, asked.zone, kinds=asked.kinds, agent=asked.agent)
    cells = [_cell(first + timedelta(days=n), days, today, asked) for n in range((last - first).days + 1)]
    before = (asked.month - timedelta(days=1)).replace(day=1)
    return {
        "month": f"{asked.month:%B %Y}",
        "before": asked.url(month=f"{before:%Y-%m}") if before >= today.replace(day=1) else "",
        "after": asked.url(month=f"{following:%Y-%m}"),
        "weekdays": ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"],
        "weeks": [cells[n : n + 7] for n in range(0, len(cells), 7)],
        "is_partial": any(day.is_more for day in days.values()),
    }


def _cell(day: date, days: dict[date, Day], today: date, asked: Asked) -> Cell:
    found = days.get(day, Day(date=day, start=datetime.min, until=datetime.min))
    # Rare wakes first: frequent ones would hide them.
    named = sorted(found.named, key=lambda one: (one.is_more, one.count))
    names = [(one.kind, _called(one) + _times(one.count, one.is_more)) for one in named[:NAMES]]
    return Cell(
        date=day,
        count=f"{found.count:,}{'+' if found.is_at_least else ''}" if found.named else "",
        names=names,
        others=len(found.named) - len(names),
        url=asked.url(view="", day=day) if found.named else "",
        is_today=day == today,
        is_of_month=day.month == asked.month.month,
    )


def _called(one: Named) -> str:
    """The timer of a run is named by its agent: its own name is that of a wait."""
    return f"{one.agent}: {one.name}" if one.agent and one.kind in OF_RUNS else one.name


def _times(count: int, is_more: bool) -> str:
    if is_more:
        return f" ×{count}+"
    return f" ×{count}" if count > 1 else ""
