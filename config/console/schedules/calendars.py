"""Exclusion calendars: days on which the schedules that use them do not fire."""

from datetime import date, timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.utils.text import capfirst
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from config.console.access.audit import entries_of
from config.console.parts.dialogs import attempt, dialog, leave
from config.console.parts.links import link, listing, page
from config.console.parts.moments import moment
from config.console.parts.pages import form_page
from config.console.parts.panel import Panel, acting, allowed, button, column
from config.console.parts.sections import Notice, Section, Table, Text
from config.console.schedules.words import state_of
from config.console.schedules.year import YearView, year_asked
from triggers.exceptions import RuleError
from triggers.models import ExclusionCalendar
from triggers.schedules.calendars import change_calendar, create_calendar, delete_calendar
from triggers.schedules.excluded_days import ExcludedDays
from triggers.schedules.preview import describe
from triggers.schedules.rows import RELATED

SHOWN = 50  # schedules that use it
WRONG_LINES = 10  # errors shown at once
AHEAD = 400  # days to search for the next excluded day
EXAMPLE = "2026-12-25 Christmas\n2026-12-24..2027-01-06 Break\n*-05-01 Labour Day"


class DaysForm(forms.Form):
    days = forms.CharField(
        required=False,
        label="Days",
        widget=UnfoldAdminTextareaWidget(
            attrs={"rows": 14, "spellcheck": "false", "data-json": "", "placeholder": EXAMPLE}
        ),
        help_text="Enter one per line: a date, a range (<code>2026-12-24..2027-01-06</code>) or a day of every year "
        "(<code>*-05-01</code>), followed by its name. Lines that start with # are ignored.",
    )

    def clean_days(self) -> str:
        """The text as typed; raises the errors of all invalid lines, with their numbers."""
        text: str = self.cleaned_data["days"].replace("\r\n", "\n")
        if wrong := wrong_lines(text):
            raise forms.ValidationError(wrong[:WRONG_LINES])
        return text


class NewCalendarForm(DaysForm):
    slug = forms.CharField(
        max_length=100,
        label="Name",
        widget=UnfoldAdminTextInputWidget(attrs={"placeholder": "at-holidays"}),
        help_text="Use lower-case letters, digits and hyphens.",
    )
    field_order = ("slug", "days")


@admin.register(ExclusionCalendar)
class ExclusionCalendarPanel(Panel):
    """Days on which schedules do not fire, e.g. public holidays."""

    list_display = ("slug", "next_day", "used_by")
    search_fields = ("slug",)
    ordering = ("slug",)
    actions_detail = ("edit", "delete_this")

    def get_queryset(self, request: HttpRequest) -> QuerySet[ExclusionCalendar]:
        return super().get_queryset(request).annotate(used=Count("schedules"))  # type: ignore[no-any-return]

    @column("next day")
    def next_day(self, calendar: ExclusionCalendar) -> str:
        try:
            return _next(ExcludedDays.parse(calendar.days), timezone.now().date()) or "–"
        except RuleError:
            return "cannot be read"

    @column("schedules")
    def used_by(self, calendar: ExclusionCalendar) -> str:
        return str(calendar.used)  # type: ignore[attr-defined]

    has_add_permission = allowed("triggers.add_exclusioncalendar")

    def new(self, request: HttpRequest) -> HttpResponse:
        form = NewCalendarForm(request.POST or None)
        if form.is_valid() and (calendar := _create(form, acting(request))):
            messages.success(request, f"Calendar {calendar.slug} is created. Schedules can now use it.")
            return leave(request, page("triggers_exclusioncalendar", calendar.pk))
        back = listing("triggers_exclusioncalendar")
        return form_page(self, request, form, title="New exclusion calendar", submit="Create the calendar", back=back)

    @button("Edit", permissions=["triggers.change_exclusioncalendar"], icon="edit", variant="primary")
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        calendar = get_object_or_404(ExclusionCalendar, pk=object_id)
        form = DaysForm(request.POST or None, initial={"days": calendar.days})
        back = page("triggers_exclusioncalendar", object_id)
        if form.is_valid():
            change_calendar(calendar, days=form.cleaned_data["days"], by=acting(request))
            messages.success(request, "Saved. Its schedules use the new days from now on.")
            return leave(request, back)
        return form_page(self, request, form, title=f"Days of {calendar.slug}", submit="Save", back=back, obj=calendar)

    @button(
        "Delete",
        permissions=["triggers.delete_exclusioncalendar"],
        icon="delete",
        url_path="remove",
        variant="danger",
        dialog=dialog("Delete this calendar?", "This is refused while a schedule uses it.", "Delete the calendar"),
    )
    def delete_this(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        calendar = get_object_or_404(ExclusionCalendar, pk=object_id)
        is_used = calendar.schedules.exists()
        back = page("triggers_exclusioncalendar", object_id) if is_used else listing("triggers_exclusioncalendar")
        done = f"Calendar {calendar.slug} is deleted."
        return attempt(request, lambda: delete_calendar(calendar, by=acting(request)), done=done, back=back)

    def sections(self, request: HttpRequest, obj: ExclusionCalendar) -> list[Section]:
        today = timezone.now().date()
        try:
            days = ExcludedDays.parse(obj.days)
        except RuleError as wrong:
            # A row written by SQL may hold any text.
            return [Notice(text=f"It cannot be read: {wrong}", level="bad"), Text(title="Days", text=obj.days)]
        year = YearView.of("Year", year_asked(request.GET.get("year", ""), today.year), days.label, today)
        return [
            Notice(text=_said(_next(days, today))),
            year,
            Table(
                title=f"Days of {year.year}",
                headers=("Date", "Name"),
                rows=[(stretch.words, stretch.label) for stretch in year.stretches],
                empty="No days.",
            ),
            _schedules(obj),
            Text(title="Source text", text=obj.days or "nothing", folded=True),
            entries_of("exclusioncalendar", obj.pk),
        ]


def wrong_lines(text: str) -> list[str]:
    """The error of each invalid line."""
    wrong: list[str] = []
    for number, line in enumerate(text.splitlines()):
        try:
            ExcludedDays.parse("\n" * number + line)  # so that the error has the right line number
        except RuleError as error:
            wrong.append(capfirst(str(error)))
    return wrong


def _create(form: NewCalendarForm, by: str) -> ExclusionCalendar | None:
    try:
        return create_calendar(slug=form.cleaned_data["slug"], days=form.cleaned_data["days"], by=by)
    except RuleError as wrong:
        form.add_error(wrong.field if wrong.field in form.fields else None, str(wrong))
        return None


def _next(days: ExcludedDays, today: date) -> str:
    """The first excluded day from today on, within AHEAD days."""
    ahead = (today + timedelta(days=number) for number in range(AHEAD))
    return next((f"{day:%a} {day.day} {day:%b %Y}, {label}" for day in ahead if (label := days.label(day))), "")


def _said(next_day: str) -> str:
    return f"Next excluded day: {next_day}." if next_day else "No excluded day in the coming year."


def _schedules(calendar: ExclusionCalendar) -> Table:
    schedules = list(calendar.schedules.select_related(*RELATED).order_by("task__name")[: SHOWN + 1])
    return Table(
        title="Schedules that use it",
        headers=("Schedule", "State", "Fires", "Next"),
        rows=[
            (
                link(page("triggers_schedule", one.pk), one.task.name),
                state_of(one),
                describe(one),
                moment(one.next_fire_at),
            )
            for one in schedules[:SHOWN]
        ],
        empty="No schedule uses it. Choose it on a schedule’s form, under “Hours and days”.",
        note=f"The first {SHOWN}; more are not shown." if len(schedules) > SHOWN else "",
    )
