"""Exclusion calendars in the console."""

from datetime import date

import pytest
from django.test import Client

from config.console.schedules.year import YearView, year_asked
from tests.config.console.test_actions import press
from tests.config.console.test_forms import errors_of
from tests.support.console import list_of, make_schedule, page_of
from triggers.models import ExclusionCalendar
from triggers.schedules.calendars import create_calendar
from triggers.schedules.excluded_days import ExcludedDays

NOUN = "triggers_exclusioncalendar"
ADD = "/admin/triggers/exclusioncalendar/add/"


def make_calendar(days: str = "*-12-25 Christmas") -> ExclusionCalendar:
    return create_calendar(slug="holidays", days=days, by="test")


def test_calendar_is_made_and_shown_with_its_days(admin: Client) -> None:
    answer = admin.post(ADD, {"slug": "holidays", "days": "*-12-25 Christmas\n*-05-01 Labour Day"}, follow=True)

    shown = answer.content.decode()
    assert ExclusionCalendar.objects.get().slug == "holidays"
    assert "2 days without fires" in shown
    assert 'title="Labour Day"' in shown


def test_every_wrong_line_is_reported_by_its_number(admin: Client) -> None:
    answer = admin.post(ADD, {"slug": "holidays", "days": "*-12-25 Christmas\nsoon\n2026-13-01"})

    assert [error.split(",")[0] for error in errors_of(answer)["days"]] == ["Line 2", "Line 3"]
    assert not ExclusionCalendar.objects.exists()


@pytest.mark.parametrize("slug", ["My holidays", "holidays"])
def test_name_that_cannot_be_or_is_taken_is_refused(admin: Client, slug: str) -> None:
    make_calendar()

    assert errors_of(admin.post(ADD, {"slug": slug, "days": ""}))["slug"]


def test_edited_days_hold_from_now_on(admin: Client) -> None:
    calendar = make_calendar()

    admin.post(page_of(NOUN, calendar).replace("change", "edit"), {"days": "*-01-06 Epiphany"})

    calendar.refresh_from_db()
    assert calendar.days == "*-01-06 Epiphany"


def test_calendar_in_use_names_its_schedules_and_is_not_deleted(admin: Client) -> None:
    calendar, schedule = make_calendar(), make_schedule("morning")
    schedule.exclude.add(calendar)

    shown = press(admin, NOUN, calendar, "remove").content.decode()

    assert "take it from there first" in shown
    assert page_of("triggers_schedule", schedule) in shown
    schedule.exclude.clear()
    press(admin, NOUN, calendar, "remove")
    assert not ExclusionCalendar.objects.exists()


def test_list_shows_the_next_day_and_unreadable_calendars(admin: Client) -> None:
    make_calendar()
    ExclusionCalendar.objects.create(slug="by-sql", days="nonsense")

    shown = admin.get(list_of(NOUN)).content.decode()

    assert "25 Dec" in shown
    assert "cannot be read" in shown
    assert admin.get(page_of(NOUN, ExclusionCalendar.objects.get(slug="by-sql"))).status_code == 200


# A year at a glance


def test_days_of_one_name_are_shown_as_one_stretch() -> None:
    days = ExcludedDays.parse("2026-12-24..2027-01-06 Break\n*-05-01 Labour Day")

    year = YearView.of("Year", 2026, days.label, date(2026, 11, 21))

    assert [(stretch.words, stretch.label) for stretch in year.stretches] == [
        ("Fri 1 May", "Labour Day"),
        ("Thu 24 Dec to Thu 31 Dec", "Break"),
    ]
    assert year.named == 9


def test_leap_year_has_all_its_days() -> None:
    assert YearView.of("Year", 2028, lambda day: "every", date(2026, 11, 21)).named == 366


@pytest.mark.parametrize(("text", "year"), [("2027", 2027), ("", 2026), ("99999999", 2026), ("x", 2026), ("²", 2026)])
def test_year_that_cannot_be_shown_is_this_year(text: str, year: int) -> None:
    assert year_asked(text, 2026) == year
