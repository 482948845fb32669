"""The page “Why did this not run?”: the answer for a schedule and a time, with its evidence."""

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from config.console.events.decisions import cells_of
from config.console.parts import fields
from config.console.parts.browser_zone import zone_shown
from config.console.parts.links import event_link, link, page, run_link
from config.console.parts.pages import form_page
from config.console.parts.panel import Panel
from config.console.parts.sections import Facts, Notice, Section, Table
from config.console.parts.time_field import FORMAT, LocalTime
from config.console.schedules.recent_fires import fires_of, skips_of, why_url
from config.console.schedules.words import in_zone, reason_of, state_of, stretch_of, wakes, zone_of_schedule
from triggers.models import Schedule
from triggers.schedules.clock import instant_of
from triggers.schedules.explain.missed_fires import missed_of
from triggers.schedules.explain.why import Verdict, WhyAnswer, why
from triggers.schedules.preview import describe
from triggers.schedules.rows import RELATED

FOUND = 30  # schedules shown by one search
LEVELS = {
    Verdict.RAN: "good",
    Verdict.TO_COME: "good",
    Verdict.SENT: "good",
    Verdict.LATE: "bad",
    Verdict.BROKEN: "bad",
    Verdict.UNKNOWN: "bad",
    Verdict.NO_RUN: "warning",
    Verdict.SKIPPED: "warning",
}


class WhyForm(forms.Form):
    at = LocalTime(label="Why did it not run at")

    def __init__(self, zone: ZoneInfo, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["at"].help_text = f"Local time in {zone}. The answer covers the whole minute."


class SearchForm(forms.Form):
    q = fields.CharField(
        label="Schedule", help_text="Enter a part of the name of the schedule, its trigger or its agent."
    )
    at = LocalTime(required=False, label="Why did it not run at")

    def __init__(self, zone: ZoneInfo, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["at"].help_text = f"Local time in {zone}, the zone of this console."


def why_of_schedule(panel: Panel, request: HttpRequest, schedule: Schedule) -> HttpResponse:
    """The question about one schedule, with its answer if a time is given; the URL can be shared."""
    zone = zone_of_schedule(schedule, zone_shown(request))
    asked = WhyForm(zone, request.GET) if "at" in request.GET else None
    is_asked = asked is not None and asked.is_valid()
    at = asked.cleaned_data["at"] if asked and is_asked else _sensible(schedule)
    local = at if at.tzinfo is None else at.astimezone(zone)
    # Shown in the zone's local time, even if it was given with an offset.
    shown = asked if asked and not is_asked else WhyForm(zone, {"at": f"{local:{FORMAT}}"})
    return form_page(
        panel,
        request,
        shown,
        title=f"{schedule.task.name}: why did it not run?",
        submit="Explain",
        back=page("triggers_schedule", schedule.pk),
        sections=[
            *(_told(_answer(schedule, at, zone)) if is_asked else []),
            *_missed(schedule, zone),
            _lately(schedule, zone),
        ],
        obj=schedule,
        method="get",
    )


def why_search(panel: Panel, request: HttpRequest) -> HttpResponse:
    """The question without a schedule: a search by name, with a link to the answer of each schedule found."""
    zone = zone_shown(request)
    form = SearchForm(zone, request.GET if "q" in request.GET else None)
    sections: list[Section] = []
    if form.is_valid():
        at = form.cleaned_data["at"]
        sections = [_found(form.cleaned_data["q"], instant_of(at, zone) if at and at.tzinfo is None else at)]
    return form_page(
        panel, request, form, title="Why did this not run?", submit="Find", back="../", sections=sections, method="get"
    )


def _answer(schedule: Schedule, at: datetime, zone: ZoneInfo) -> WhyAnswer:
    # A crontab's zone is the one it had at that time; a rule without a zone uses the zone of its hours and days.
    return why(schedule, at, zone=None if schedule.task.crontab else zone)


def _sensible(schedule: Schedule) -> datetime:
    """The newest skipped time, else the last fire, else a recent time."""
    skipped = [skip.last for skip in skips_of(schedule, 1)]
    fired = [fire.nominal for fire in fires_of(schedule, 1)]
    return next(iter([*skipped, *fired]), timezone.now() - timedelta(hours=1))


def _told(answer: WhyAnswer) -> list[Section]:
    links = [
        ("Event", answer.event_id and event_link(answer.event_id)),
        ("Run", answer.run_id and run_link(answer.run_id)),
    ]
    sections: list[Section] = [
        Notice(text=answer.text, level=LEVELS.get(answer.verdict, "info")),
        Facts(title="Facts", rows=[*answer.facts, *links]),
    ]
    if answer.decision:
        headers = ("Outcome", "Reason", "Run concerned", "When")
        sections.append(Table(title="The decision", headers=headers, rows=[cells_of(answer.decision)], empty=""))
    return sections


def _missed(schedule: Schedule, zone: ZoneInfo) -> list[Section]:
    """Those that the first page counts."""
    found = list(missed_of(schedule))
    count = sum(skip.count or 1 for skip in found)
    rows = [(link(why_url(schedule.pk, skip.last), stretch_of(skip, zone)), reason_of(skip)) for skip in found]
    title = f"Missed in the last day: {count:,}"
    return [Table(title=title, headers=(f"Nominal ({zone})", "Reason"), rows=rows, empty="")] if found else []


def _lately(schedule: Schedule, zone: ZoneInfo) -> Table:
    """Recent times, fired and skipped, newest first."""
    rows = [
        (fire.nominal, link(why_url(schedule.pk, fire.nominal), in_zone(fire.nominal, zone)), fire.outcome)
        for fire in fires_of(schedule)
    ]
    rows += [
        (skip.last, link(why_url(schedule.pk, skip.last), stretch_of(skip, zone)), reason_of(skip))
        for skip in skips_of(schedule)
    ]
    rows.sort(key=lambda row: row[0], reverse=True)
    return Table(
        title="Recent times",
        headers=(f"Nominal ({zone})", "Outcome"),
        rows=[row[1:] for row in rows],
        empty="None yet.",
    )


def _found(text: str, at: datetime | None) -> Table:
    named = Q(task__name__icontains=text) | Q(trigger__slug__icontains=text) | Q(trigger__agent__icontains=text)
    schedules = list(Schedule.objects.filter(named).select_related(*RELATED).order_by("task__name")[: FOUND + 1])
    return Table(
        title="Schedules",
        headers=("Schedule", "State", "Fires", "Wakes"),
        rows=[
            (link(why_url(one.pk, at), one.task.name), state_of(one), describe(one), wakes(one))
            for one in schedules[:FOUND]
        ],
        empty="No schedule matches.",
        note=f"Only the first {FOUND} are shown. Enter more of the name." if len(schedules) > FOUND else "",
    )
