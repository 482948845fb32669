"""The form of a backfill: a range of past times, with a preview of the number of fires."""

from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.text import capfirst

from config.console.parts import fields
from config.console.parts.dialogs import leave
from config.console.parts.links import page
from config.console.parts.moments import instant
from config.console.parts.pages import Group, form_page
from config.console.parts.panel import Panel, acting
from config.console.parts.previews import Preview, is_asked, wrong_with
from config.console.parts.time_field import FORMAT, LocalTime
from config.console.schedules.words import in_zone, zone_of_schedule
from runs.exceptions import RunError
from triggers.accept import builtin_source
from triggers.exceptions import RuleError
from triggers.models import Backfill, Event, Schedule
from triggers.schedules.backfill.start import MOST, start_backfill
from triggers.schedules.backfill.ticks import nominal_times, plan_from
from triggers.schedules.clock import instant_of
from triggers.schedules.explain.trail import fired_between, names_of

LOOKED_UP = 5_000  # check up to this many nominal times for earlier fires
EDGE = 3  # times shown from either end


class BackfillForm(forms.Form):
    start = LocalTime(label="From", help_text="Include nominal times from here on.")
    end = LocalTime(label="To", help_text="Exclude nominal times from here on. At most the current time.")
    at_once = fields.IntegerField(
        min_value=1,
        max_value=1000,
        initial=1,
        label="Concurrent runs",
        help_text="Limit the concurrent runs of the backfill. They start in the order of their times.",
    )
    priority = fields.IntegerField(
        min_value=0,
        max_value=9,
        initial=9,
        label="Priority",
        help_text="Set the priority of its runs: 0 is most urgent, 9 least.",
    )
    again = fields.BooleanField(
        required=False, label="Fire again", help_text="Also fire times that have already fired, each with a new event."
    )

    def __init__(self, schedule: Schedule, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.schedule, self.zone = schedule, zone_of_schedule(schedule)
        midnight = timezone.now().astimezone(self.zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        self.initial = {"start": f"{midnight - timedelta(days=1):{FORMAT}}", "end": f"{midnight:{FORMAT}}"}
        self.fields["at_once"].widget.attrs["max"] = 1000

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        start, end = (_instant(cleaned.get(name), self.zone) for name in ("start", "end"))
        if start and end and start >= end:
            self.add_error("end", "“To” must be later than “From”.")
        return {**cleaned, "start": start, "end": end}

    def groups(self, preview: Preview) -> list[Group]:
        note = f"Local times in {self.zone}."
        fields = [self[name] for name in self.fields]
        return [
            Group(title="Range", note=note, fields=fields[:2], sections=[preview]),
            Group(title="Execution", fields=fields[2:]),
        ]


def backfill_page(panel: Panel, request: HttpRequest, schedule: Schedule) -> HttpResponse:
    form = BackfillForm(schedule, request.POST or None)
    if form.is_valid() and not is_asked(request) and (started := _start(form, request)):
        messages.success(request, f"Started a backfill of {started.total:,} times.")
        return leave(request, page("triggers_backfill", started.pk))
    return form_page(
        panel,
        request,
        form,
        title=f"Backfill {schedule.task.name}",
        submit="Start the backfill",
        back=page("triggers_schedule", schedule.pk),
        groups=form.groups(_preview(form)),
        obj=schedule,
    )


def backfill_preview(request: HttpRequest, schedule: Schedule) -> Preview:
    """The preview while the form is being filled in."""
    return _preview(BackfillForm(schedule, request.POST))


def _start(form: BackfillForm, request: HttpRequest) -> Backfill | None:
    try:
        return start_backfill(form.schedule, **form.cleaned_data, by=acting(request))
    except RuleError as wrong:
        form.add_error(wrong.field if wrong.field in form.fields else None, f"{capfirst(str(wrong))}.")
    except RunError as refusal:
        form.add_error(None, str(refusal))
    return None


def _preview(form: BackfillForm) -> Preview:
    url = reverse("admin:triggers_schedule_backfill_preview", args=[form.schedule.pk])
    if not form.is_bound:
        form = BackfillForm(form.schedule, {**form.initial, "at_once": 1, "priority": 9})
    if not form.is_valid():
        return Preview(url=url, wrong=wrong_with(form))
    start, end = form.cleaned_data["start"], form.cleaned_data["end"]
    try:
        times = list(islice(nominal_times(plan_from(form.schedule, start), start, end), MOST + 1))
    except RuleError as wrong:
        return Preview(url=url, wrong=[str(wrong)])
    return Preview(url=url, words=_said(form.schedule, times, start, end), **_table(times, form.zone))


def _said(schedule: Schedule, times: list[datetime], start: datetime, end: datetime) -> str:
    if not times:
        return "This range contains none of its times."
    if len(times) > MOST:
        return f"This range contains more than {MOST:,} of its times: choose a shorter one."
    said = f"This range contains {len(times):,} of its times"
    if len(times) > LOOKED_UP:
        return f"{said}."
    fired = _fired(schedule, times)
    said = f"{said}; {fired:,} {'has' if fired == 1 else 'have'} already fired."
    # An interval restarts after a pause or an edit, so earlier fires may lie at other times than the current rule's.
    if others := fired_between(schedule, start, end)[: LOOKED_UP + 1].count() - fired:
        count = "once" if others == 1 else f"{'at least ' if others + fired > LOOKED_UP else ''}{others:,} times"
        said += f" It has fired {count} in this range at times that are not in its current rule, e.g. before a pause or an edit:"
        said += " the backfill fires in addition to those."
    return said


def _fired(schedule: Schedule, times: list[datetime]) -> int:
    ids = [f"{schedule.task_id}:{time.isoformat()}" for time in times]
    ticks = Event.objects.filter(source_id=builtin_source("schedule"), ce_source__in=names_of(schedule), ce_id__in=ids)
    return ticks.count()


def _table(times: list[datetime], zone: ZoneInfo) -> dict[str, Any]:
    shown = [(in_zone(time, zone), instant(time)) for time in times]
    if len(shown) > 2 * EDGE + 1:
        shown = [*shown[:EDGE], ("…", "…"), *shown[-EDGE:]]  # type: ignore[list-item]
    return {"headers": (f"Nominal times in {zone}", "In your zone"), "rows": shown}


def _instant(at: datetime | None, zone: ZoneInfo) -> datetime | None:
    if at is None:
        return None
    return at if at.tzinfo else instant_of(at, zone)
