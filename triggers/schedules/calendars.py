"""Exclusion calendars: what a person does to one. A calendar edited is an edit of every schedule that names it."""

from collections.abc import Iterable

from django.db import IntegrityError, transaction
from django.utils.text import slugify

from runs.exceptions import IllegalState
from runs.models.audit import changes, record
from triggers.exceptions import RuleError
from triggers.models import ExclusionCalendar
from triggers.schedules.excluded_days import ExcludedDays

SHOWN = 5  # schedules that an error names


def create_calendar(*, slug: str, days: str, by: str) -> ExclusionCalendar:
    """A new calendar; RuleError names the field, for `days` with the line, and what to write instead."""
    if not slug or slug != slugify(slug) or len(slug) > 100:
        fix = slugify(slug)[:100] or "at-holidays"
        raise RuleError(f"{slug!r} is no name: lower case letters, digits and hyphens, such as {fix!r}", field="slug")
    ExcludedDays.parse(days)
    try:
        with transaction.atomic():
            calendar = ExclusionCalendar.objects.create(slug=slug, days=days)
            record(by, "create", calendar, slug=slug, days=days)
    except IntegrityError:
        raise RuleError(f"there is a calendar {slug!r} already; choose another name", field="slug") from None
    return calendar


def change_calendar(calendar: ExclusionCalendar, *, days: str, by: str) -> ExclusionCalendar:
    """Other days for every schedule that names it; RuleError names the line that makes no sense."""
    ExcludedDays.parse(days)
    with transaction.atomic():
        changed = ExclusionCalendar.objects.filter(pk=calendar.pk).exclude(days=days).update(days=days)
        if changed:
            record(by, "edit", calendar, slug=calendar.slug, **changes({"days": calendar.days}, {"days": days}))
    calendar.refresh_from_db()
    return calendar


def delete_calendar(calendar: ExclusionCalendar, *, by: str) -> None:
    """IllegalState names the schedules that use it."""
    with transaction.atomic():
        # Locked, so that no schedule comes to name it meanwhile.
        ExclusionCalendar.objects.select_for_update().get(pk=calendar.pk)
        names = list(calendar.schedules.order_by("task__name").values_list("task__name", flat=True)[: SHOWN + 1])
        if names:
            shown = ", ".join(names[:SHOWN]) + (" and others" if len(names) > SHOWN else "")
            raise IllegalState(
                f"Calendar {calendar.slug} is used by {shown}: take it from there first.", status="in_use"
            )
        record(by, "delete", calendar, slug=calendar.slug, days=calendar.days)
        calendar.delete()


def calendars_named(slugs: Iterable[str]) -> list[ExclusionCalendar]:
    """The calendars of these names; RuleError names one that does not exist, and those that do."""
    wanted = set(slugs)
    found = list(ExclusionCalendar.objects.filter(slug__in=wanted).order_by("slug")) if wanted else []
    if missing := sorted(wanted - {calendar.slug for calendar in found}):
        known = ", ".join(ExclusionCalendar.objects.order_by("slug").values_list("slug", flat=True)) or "none yet"
        raise RuleError(f"there is no calendar {missing[0]!r}; the calendars are: {known}", field="exclude")
    return found
