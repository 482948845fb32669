"""Schedules in the console: entered in words and confirmed before they are saved, and seen at a glance."""

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django_celery_beat.models import PeriodicTask, SolarSchedule

from runs.db.sql import fetch
from runs.models import AuditEntry
from runs.retention.removal import REMOVING
from tests.config.console.test_forms import agent as agent
from tests.config.console.test_forms import errors_of
from tests.support.console import list_of, make_schedule, page_of
from triggers.models import Event, Schedule, Skip
from triggers.schedules.calendars import create_calendar
from triggers.schedules.edit import pause_schedule
from triggers.schedules.firing import due_schedules

ADD = "/admin/triggers/schedule/add/"
SAID = {"when": "every weekday at 09:00", "tz": "Europe/Vienna", "kind": "schedule", "catch_up": "latest"}


def preview_of(client: Client, **fields: str) -> str:
    """What the form confirms while it is being filled in."""
    return client.post(reverse("admin:triggers_schedule_preview"), {**SAID, **fields}).content.decode()


def edit_url(schedule: Schedule) -> str:
    return page_of("triggers_schedule", schedule).replace("change", "edit")


# In words


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ("every weekday at 09:00", "09:00, Monday through Friday (Europe/Vienna)"),
        ("0 9 * * mon-fri", "09:00, Monday through Friday (Europe/Vienna)"),
        ("every 30m", "very 30 minutes"),
        ("at 2099-06-01T09:00", "2099-06-01"),
        ("in 20 minutes", "nce, at"),
    ],
)
def test_schedule_is_created_from_words(admin: Client, agent: str, when: str, words: str) -> None:
    confirmed = preview_of(admin, when=when)
    answer = admin.post(ADD, {**SAID, "name": "digest", "agent": agent, "when": when}, follow=True)

    schedule = Schedule.objects.get(task__name="digest")
    assert schedule.trigger and schedule.trigger.agent == agent
    assert words in confirmed
    assert words in answer.content.decode()


def test_next_ten_fires_are_shown_in_its_zone_and_in_the_readers(admin: Client) -> None:
    confirmed = preview_of(admin, when="0 9 1 1 *")

    assert confirmed.count("<time ") == 10
    assert "Next fires in Europe/Vienna" in confirmed
    assert "1 Jan 2030, 09:00" in confirmed
    assert 'datetime="2030-01-01T08:00:00+00:00"' in confirmed


def test_preview_leaves_out_excluded_times(admin: Client) -> None:
    create_calendar(slug="new-year", days="*-01-01 New Year", by="test")

    confirmed = preview_of(admin, when="0 9 1 * *", exclude="new-year", active_hours="08:00-10:00")

    assert "1 Jan 2" not in confirmed
    assert confirmed.count("<time ") == 10


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"when": "0 9 * *"}, "when", "mon-fri"),
        ({"when": "whenever you like"}, "when", "every weekday at 09:00"),
        ({"when": "at 2001-01-01T09:00"}, "when", "past"),
        ({"jitter": "soon"}, "jitter", "30m"),
        ({"active_hours": "9 to 5"}, "active_hours", "mon-fri 09:00-17:00"),
        ({"when": "every day at 20:00", "active_hours": "mon-fri 09:00-17:00"}, "active_hours", "closed"),
        ({"catch_up_max": "3"}, "catch_up_max", "all"),
        ({"pace_min": "5m"}, "pace_max", "give it too"),
        ({"start": "2099-01-02T00:00", "end": "2099-01-01T00:00"}, "end", "not after start"),
        ({"data": "{"}, "data", "JSON"),
    ],
)
def test_an_invalid_value_is_refused_at_its_field(
    admin: Client, agent: str, changes: dict[str, str], field: str, message: str
) -> None:
    answer = admin.post(ADD, {**SAID, "name": "digest", "agent": agent, **changes})

    assert message in str(errors_of(answer)[field])
    assert message in preview_of(admin, **changes).replace("&quot;", '"')
    assert not Schedule.objects.exists()


def test_preview_button_saves_nothing_and_works_without_scripts(admin: Client, agent: str) -> None:
    answer = admin.post(ADD, {**SAID, "name": "digest", "agent": agent, "_preview": "1"})

    assert "09:00, Monday through Friday" in answer.content.decode()
    assert not Schedule.objects.exists()


def test_folded_group_with_an_invalid_field_is_open(admin: Client, agent: str) -> None:
    answer = admin.post(ADD, {**SAID, "name": "digest", "agent": agent, "jitter": "soon"})

    assert [group.title for group in answer.context["groups"] if group.is_wrong] == ["Delays"]
    assert answer.content.decode().count("<details open>") == 1


def test_form_saves_and_shows_every_field_of_a_policy(admin: Client, agent: str) -> None:
    create_calendar(slug="holidays", days="*-12-25 Christmas", by="test")
    fields = {
        **SAID,
        "catch_up": "all",
        "catch_up_max": "3",
        "catch_up_window": "2h",
        "spread": "10m",
        "jitter": "30s",
        "active_hours": "mon-fri 08:00-18:00",
        "active_zone": "UTC",
        "exclude": "holidays",
        "start": "2090-01-01T00:00:00",
        "end": "2099-01-01T00:00:00",
        "max_fires": "5",
        "data": '{"team": "a"}',
    }
    admin.post(ADD, {**fields, "name": "digest", "agent": agent})
    schedule = Schedule.objects.get()

    form = admin.get(edit_url(schedule)).context["form"]
    shown = {name: form[name].value() for name in fields}

    assert schedule.task.start_time.isoformat() == "2089-12-31T23:00:00+00:00"
    assert shown == {
        **fields,
        "when": "0 9 * * mon-fri",
        "catch_up_max": 3,
        "max_fires": 5,
        "exclude": ["holidays"],
    } | {"data": form["data"].value()}
    assert schedule.data == {"team": "a"}


def test_active_hours_of_an_interval_are_on_the_clock_that_was_chosen(admin: Client, agent: str) -> None:
    fields = {**SAID, "when": "every 30m", "active_hours": "09:00-17:00", "tz": "Asia/Kathmandu"}

    admin.post(ADD, {**fields, "name": "digest", "agent": agent})

    schedule = Schedule.objects.get()
    assert schedule.active_zone == "Asia/Kathmandu"
    assert admin.get(edit_url(schedule)).context["form"]["tz"].value() == "Asia/Kathmandu"


def test_saving_without_changes_is_no_edit(admin: Client) -> None:
    schedule = make_schedule("morning")
    form = admin.get(edit_url(schedule)).context["form"]
    fetch(f"SELECT {REMOVING}")
    AuditEntry.objects.all().delete()  # as retention does

    admin.post(edit_url(schedule), {name: form[name].value() or "" for name in form.fields if name != "exclude"})

    assert not AuditEntry.objects.exists()


def test_editing_the_catch_up_alone_leaves_the_rule_untouched(admin: Client) -> None:
    schedule = make_schedule("morning")
    before = schedule.task.crontab_id

    admin.post(edit_url(schedule), {**SAID, "when": "0 9 * * mon-fri", "catch_up": "all"})

    schedule.refresh_from_db()
    assert (schedule.catch_up, schedule.task.crontab_id) == ("all", before)
    assert "rule" not in AuditEntry.objects.get(action="edit").detail


def test_reminder_without_text_or_with_a_repeating_rule_is_refused(admin: Client, agent: str) -> None:
    fields = {**SAID, "kind": "reminder", "name": "plants", "agent": agent}

    assert "text" in errors_of(admin.post(ADD, {**fields, "when": "in 20 minutes"}))
    assert "comes once" in str(errors_of(admin.post(ADD, {**fields, "text": "Water the plants"}))["when"])
    assert not Schedule.objects.exists()


def test_reminder_comes_with_its_text(admin: Client, agent: str) -> None:
    fields = {**SAID, "when": "in 20 minutes", "kind": "reminder", "text": "Water the plants", "name": "plants"}

    admin.post(ADD, {**fields, "agent": agent})

    schedule = Schedule.objects.get()
    assert (schedule.kind, schedule.data) == ("reminder", {"text": "Water the plants"})
    assert admin.get(edit_url(schedule)).context["form"]["text"].value() == "Water the plants"


# At a glance


def shown_of(client: Client, schedule: Schedule) -> str:
    return client.get(page_of("triggers_schedule", schedule)).content.decode()


def test_page_shows_each_fire_with_its_times_and_outcome(admin: Client) -> None:
    schedule = make_schedule("morning")
    due_schedules.settle(timezone.now())
    schedule.refresh_from_db()
    assert schedule.due_at is not None
    due_schedules.fire_due(schedule.due_at + timedelta(seconds=1))

    shown = shown_of(admin, schedule)

    assert Event.objects.get().ce_source == "morning"
    assert "waits for the dispatcher" in shown
    assert str(Event.objects.get().pk) in shown
    assert "Fires so far" in shown


def test_page_shows_skipped_times_with_their_reasons(admin: Client) -> None:
    schedule = make_schedule("morning")
    first = timezone.now() - timedelta(days=2)
    Skip.objects.create(
        schedule=schedule, reason="excluded", first=first, last=first, count=1, detail="holidays: Christmas"
    )

    shown = shown_of(admin, schedule)

    assert "An exclusion calendar names their day: holidays: Christmas" in shown
    assert f"{reverse('admin:triggers_schedule_why', args=[schedule.pk])}?at=" in shown


def test_page_shows_edits_from_every_source(admin: Client) -> None:
    schedule = make_schedule("morning")
    Schedule.objects.update(created_at=timezone.now() - timedelta(days=1))
    Schedule.objects.update(jitter=timedelta(seconds=30))

    shown = shown_of(admin, schedule)

    assert "jitter (s): none → 30" in shown


def test_ordinary_task_has_a_page_without_the_parts_for_agents(admin: Client) -> None:
    schedule = make_schedule("cleanup")
    Schedule.objects.update(trigger=None)

    shown = shown_of(admin, schedule)

    assert "/why/" in shown
    assert "/backfill/" not in shown
    assert "/remove/" not in shown


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"kind": "schedule"}, ["on", "off", "gone"]),
        ({"kind": "reminder"}, ["nudge"]),
        ({"kind": "task"}, ["task"]),
        ({"state": "active"}, ["nudge", "on", "task"]),
        ({"state": "paused"}, ["off"]),
        ({"state": "spent"}, ["gone"]),
    ],
)
def test_list_is_narrowed_down_by_kind_and_state(admin: Client, filters: dict[str, str], found: list[str]) -> None:
    made = {name: make_schedule(name) for name in ("on", "off", "gone", "nudge", "task")}
    pause_schedule(made["off"], by="test")
    Schedule.objects.filter(pk=made["gone"].pk).update(rest="used_up")
    Schedule.objects.filter(pk=made["nudge"].pk).update(kind="reminder")
    Schedule.objects.filter(pk=made["task"].pk).update(trigger=None)

    answer = admin.get(list_of("triggers_schedule"), filters)

    assert {one.task.name for one in answer.context["cl"].queryset} == set(found)


def test_rule_that_has_no_words_stays_while_the_rest_is_edited(admin: Client) -> None:
    schedule = make_schedule("morning")
    sun = SolarSchedule.objects.create(event="sunrise", latitude=48.2, longitude=16.37)
    PeriodicTask.objects.filter(pk=schedule.task_id).update(crontab=None, solar=sun)

    admin.post(edit_url(schedule), {**SAID, "when": "", "catch_up": "all"})

    schedule.refresh_from_db()
    assert (schedule.catch_up, schedule.task.solar) == ("all", sun)


def test_skipped_stretch_is_reported_with_its_number(admin: Client) -> None:
    schedule = make_schedule("morning")
    at = datetime(2026, 11, 16, 8, tzinfo=UTC)
    Skip.objects.create(schedule=schedule, reason="paused", first=at, last=at + timedelta(days=4), count=5)

    assert "5 times, Mon 16 Nov 2026, 09:00 to Fri 20 Nov 2026, 09:00" in shown_of(admin, schedule)
