"""“Why did this not run at 09:00?” in the console: the answer is a sentence with links."""

from datetime import timedelta

from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.support.console import make_schedule
from tests.support.triggers import make_trigger
from triggers.models import Event, Schedule, Skip
from triggers.schedules.edit import create_schedule
from triggers.schedules.firing import due_schedules
from triggers.schedules.rules.interval import Interval
from triggers.schedules.terms.policy import SchedulePolicy


def ask(client: Client, schedule: Schedule, at: str) -> str:
    return client.get(reverse("admin:triggers_schedule_why", args=[schedule.pk]), {"at": at}).content.decode()


def test_time_before_it_was_made_is_reported(admin: Client) -> None:
    schedule = make_schedule("morning")

    assert "There was no such schedule yet" in ask(admin, schedule, "2020-01-02T09:00")


def test_time_is_read_from_the_schedules_own_clock(admin: Client) -> None:
    schedule = make_schedule("morning")

    shown = ask(admin, schedule, "2020-01-02T09:00")

    assert "Thu 2 Jan 2020, 09:00 (Europe/Vienna)" in shown
    assert ask(admin, schedule, "2020-01-02T08:00:00+00:00").count('value="2020-01-02T09:00:00"') == 1


def test_time_of_an_interval_is_read_in_the_zone_of_its_hours(admin: Client) -> None:
    policy = SchedulePolicy(active_zone="Asia/Kathmandu")
    schedule = create_schedule(
        name="pulse", rule=Interval.parse("1h"), trigger=make_trigger("pulse"), policy=policy, by="test"
    )

    assert "Thu 2 Jan 2020, 09:00 (Asia/Kathmandu)" in ask(admin, schedule, "2020-01-02T09:00")


def test_fire_is_reported_with_its_event(admin: Client) -> None:
    schedule = make_schedule("morning")
    due_schedules.settle(timezone.now())
    schedule.refresh_from_db()
    assert schedule.due_at
    due_schedules.fire_due(schedule.due_at)
    event = Event.objects.get()

    assert str(event.pk) in ask(admin, schedule, schedule.due_at.isoformat())


def test_without_a_time_the_newest_skip_is_explained(admin: Client) -> None:
    schedule = make_schedule("morning")
    at = (timezone.now() - timedelta(days=2)).replace(microsecond=0)
    Skip.objects.create(schedule=schedule, reason="paused", first=at, last=at, count=1)

    answer = admin.get(reverse("admin:triggers_schedule_why", args=[schedule.pk]))

    local = at.astimezone(schedule.task.crontab.timezone)
    assert f'value="{local:%Y-%m-%dT%H:%M:%S}"' in answer.content.decode()
    assert "Facts" not in answer.content.decode()


def test_an_invalid_time_is_refused_at_its_field(admin: Client) -> None:
    assert "Enter a date and time, e.g. 2026-11-20T09:00." in ask(admin, make_schedule("morning"), "nine")


def test_schedule_is_found_by_name_and_the_time_goes_along(admin: Client) -> None:
    schedule = make_schedule("morning")
    make_schedule("evening")

    shown = admin.get(reverse("admin:triggers_schedule_why_search"), {"q": "morn", "at": "2026-11-20T09:00"})

    assert f"/schedule/{schedule.pk}/why/?at=2026-11-20T09%3A00%3A00" in shown.content.decode()
    assert "evening" not in shown.content.decode()
