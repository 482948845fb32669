"""Exclusion calendars: what a person does to one."""

import pytest

from runs.exceptions import IllegalState
from runs.models import AuditEntry
from tests.support.triggers import make_trigger
from triggers.exceptions import RuleError
from triggers.models import ExclusionCalendar, Revision, Schedule
from triggers.schedules.calendars import calendars_named, change_calendar, create_calendar, delete_calendar
from triggers.schedules.edit import create_schedule, edit_schedule
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.terms.policy import SchedulePolicy

pytestmark = pytest.mark.django_db


def actions() -> list[str]:
    entries = AuditEntry.objects.filter(kind="exclusioncalendar").order_by("id")
    return [f"{entry.by} {entry.action}" for entry in entries]


def test_a_calendar_is_made_changed_and_deleted_and_that_is_recorded() -> None:
    calendar = create_calendar(slug="at", days="*-12-25 Christmas", by="ada")
    assert change_calendar(calendar, days="*-12-26 Boxing Day", by="ada").days == "*-12-26 Boxing Day"
    change_calendar(calendar, days="*-12-26 Boxing Day", by="nobody")  # changes nothing
    delete_calendar(calendar, by="ada")

    assert not ExclusionCalendar.objects.exists()
    assert actions() == ["ada create", "ada edit", "ada delete"]


@pytest.mark.parametrize(
    ("slug", "days", "field", "complaint"),
    [
        ("Österreich!", "", "slug", "such as 'osterreich'"),
        ("", "", "slug", "such as 'at-holidays'"),
        ("there", "", "slug", "there is a calendar 'there' already"),
        ("at", "*-12-25\n25.12.", "days", "line 2, '25.12.': this is no day"),
    ],
)
def test_an_invalid_calendar_is_refused_with_its_field(slug: str, days: str, field: str, complaint: str) -> None:
    there = create_calendar(slug="there", days="", by="ada")

    with pytest.raises(RuleError, match=complaint) as refused:
        create_calendar(slug=slug, days=days, by="ada")

    assert refused.value.field == field
    if field == "days":
        with pytest.raises(RuleError, match=complaint):
            change_calendar(there, days=days, by="ada")
    assert ExclusionCalendar.objects.count() == 1


def test_a_calendar_in_use_is_not_deleted_and_its_schedules_are_named() -> None:
    calendar = create_calendar(slug="at", days="*-12-25", by="ada")
    policy = SchedulePolicy(exclude=("at",))
    schedule = create_schedule(
        name="digest", trigger=make_trigger(), rule=Cron.parse("0 9 * * *"), policy=policy, by="ada"
    )

    with pytest.raises(IllegalState, match="Calendar at is used by digest: take it from there first"):
        delete_calendar(calendar, by="ada")
    edit_schedule(schedule, policy=SchedulePolicy(), by="ada")
    delete_calendar(calendar, by="ada")

    assert not ExclusionCalendar.objects.exists()


def test_a_calendar_that_changes_is_an_edit_of_the_schedules_that_name_it() -> None:
    calendar = create_calendar(slug="at", days="*-12-25", by="ada")
    policy = SchedulePolicy(exclude=("at",))
    create_schedule(name="digest", trigger=make_trigger(), rule=Cron.parse("0 9 * * *"), policy=policy, by="ada")
    Schedule.objects.update(stale=False, accounted_until="2026-11-20T00:00Z")

    change_calendar(calendar, days="*-12-26", by="ada")

    assert Schedule.objects.get().stale
    assert Revision.objects.latest("id").state["exclude"] == {"at": "*-12-25"}


def test_calendars_that_are_not_there_are_named_beside_those_that_are() -> None:
    create_calendar(slug="at", days="", by="ada")

    assert [calendar.slug for calendar in calendars_named(["at", "at"])] == ["at"]
    with pytest.raises(RuleError, match="there is no calendar 'de'; the calendars are: at"):
        calendars_named(["de", "at"])
