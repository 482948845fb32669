"""Backfills in the console: looked at before they start, watched while they run."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.config.console.test_actions import press
from tests.config.console.test_forms import errors_of
from tests.support.console import list_of, make_schedule, page_of
from tests.support.triggers import make_trigger
from tests.triggers.test_beat import HOUR, every, fire_all, settled
from tests.triggers.test_beat import make_schedule as make_beat_schedule
from triggers.models import Backfill, BackfillTick, Event, Schedule
from triggers.schedules.backfill.advance import advance
from triggers.schedules.backfill.start import start_backfill
from triggers.schedules.edit import pause_schedule, resume_schedule

NOUN = "triggers_backfill"
RANGE = {"start": "2025-03-03T00:00", "end": "2025-03-10T00:00", "at_once": "1", "priority": "9"}


def page_for(schedule: Schedule) -> str:
    return page_of("triggers_schedule", schedule).replace("change", "backfill")


def preview_of(client: Client, schedule: Schedule, **fields: str) -> str:
    url = reverse("admin:triggers_schedule_backfill_preview", args=[schedule.pk])
    return client.post(url, {**RANGE, **fields}).content.decode()


def make_backfill() -> Backfill:
    now = timezone.now()
    return start_backfill(make_schedule("morning"), start=now - timedelta(days=8), end=now, by="admin:ada")


def test_the_default_range_is_yesterday(admin: Client) -> None:
    schedule = make_schedule("morning")
    today = timezone.now().astimezone(schedule.task.crontab.timezone).date()

    form = admin.get(page_for(schedule)).context["form"]

    assert form["start"].value() == f"{today - timedelta(days=1)}T00:00:00"
    assert form["end"].value() == f"{today}T00:00:00"


def test_how_many_fires_it_would_be_is_reported_before_it_starts(admin: Client) -> None:
    schedule = make_schedule("morning")

    shown = preview_of(admin, schedule)

    assert "contains 5 of its times; 0 have already fired." in shown
    assert "Mon 3 Mar 2025, 09:00" in shown
    assert 'datetime="2025-03-07T08:00:00+00:00"' in shown
    assert not Backfill.objects.exists()


def test_earlier_fires_at_other_times_of_an_interval_are_shown(admin: Client) -> None:
    schedule = make_beat_schedule(every(HOUR), seen_at=(noon := datetime(2025, 3, 3, 12, 0, 30, tzinfo=UTC)))
    Schedule.objects.filter(pk=schedule.pk).update(trigger=make_trigger("hourly"))
    for hours in (1, 2, 3):
        fire_all(noon + hours * HOUR)
    span = {"start": "2025-03-03T12:30+00:00", "end": "2025-03-03T15:30+00:00"}
    assert "contains 3 of its times; 3 have already fired.<" in preview_of(admin, schedule, **span)

    pause_schedule(schedule, by="test")
    settled(schedule, timezone.now())
    resume_schedule(schedule, by="test")
    settled(schedule, timezone.now())

    shown = preview_of(admin, schedule, **span)
    assert "0 have already fired. It has fired 3 times in this range at times that are not in its current rule" in shown


def test_preview_button_starts_nothing(admin: Client) -> None:
    answer = admin.post(page_for(make_schedule("morning")), {**RANGE, "_preview": "1"})

    assert "5 of its times" in answer.content.decode()
    assert not Backfill.objects.exists()


def test_backfill_is_started_in_the_schedules_own_zone(admin: Client) -> None:
    schedule = make_schedule("morning")

    answer = admin.post(page_for(schedule), {**RANGE, "at_once": "3", "priority": "4", "again": "on"}, follow=True)

    backfill = Backfill.objects.get()
    assert backfill.start.isoformat() == "2025-03-02T23:00:00+00:00"
    assert (backfill.total, backfill.at_once, backfill.priority, backfill.again) == (5, 3, 4, True)
    assert backfill.by == "admin:ada"
    assert "Progress: 0 of 5" in answer.content.decode()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"end": "2025-03-02T00:00"}, "end"),
        ({"end": "2099-01-01T00:00"}, "end"),
        ({"start": "2025-03-08T00:00"}, "start"),
        ({"at_once": "0"}, "at_once"),
        ({"priority": "12"}, "priority"),
        ({"start": "yesterday"}, "start"),
    ],
)
def test_an_invalid_value_is_refused_at_its_field(admin: Client, fields: dict[str, str], field: str) -> None:
    answer = admin.post(page_for(make_schedule("morning")), {**RANGE, **fields})

    assert field in errors_of(answer)
    assert not Backfill.objects.exists()


def test_page_shows_progress_and_the_outcome_of_each_time(admin: Client) -> None:
    backfill = make_backfill()
    advance_settled()

    shown = admin.get(page_of(NOUN, backfill)).content.decode()

    assert f"Progress: 0 of {backfill.total}" in shown
    assert "its run has not ended" in shown
    assert str(Event.objects.earliest("time").pk) in shown


def test_page_links_failed_times_to_the_failed_runs(admin: Client) -> None:
    backfill = make_backfill()
    advance_settled()
    BackfillTick.objects.filter(backfill=backfill).update(outcome="failed")
    Backfill.objects.filter(pk=backfill.pk).update(status="done", ended_at=backfill.end, position=backfill.end)

    shown = admin.get(page_of(NOUN, backfill)).content.decode()

    assert "did not succeed" in shown
    assert "status__exact=failed&amp;q=" in shown


def test_cancelled_backfill_shows_who_cancelled_it_and_has_no_button_left(admin: Client) -> None:
    backfill = make_backfill()

    shown = press(admin, NOUN, backfill, "cancel").content.decode()

    assert "Cancelled." in shown
    assert "admin:ada" in shown
    assert "Cancel this backfill" not in shown
    assert page_of(NOUN, backfill).replace("change", "cancel") not in shown


def test_list_shows_range_and_state(admin: Client) -> None:
    backfill = make_backfill()

    shown = admin.get(list_of(NOUN)).content.decode()

    assert "(Europe/Vienna)" in shown
    assert str(backfill.total) in shown


def test_backfilled_fire_is_marked_as_backfilled(admin: Client) -> None:
    backfill = make_backfill()
    advance_settled()

    shown = admin.get(page_of("triggers_schedule", backfill.schedule)).content.decode()

    assert "<td>backfilled</td>" in shown


def test_page_looks_again_by_itself_only_while_it_goes_on(admin: Client) -> None:
    backfill = make_backfill()
    running = admin.get(page_of(NOUN, backfill)).content.decode()

    press(admin, NOUN, backfill, "cancel")

    assert "every 2s" in running
    assert "every 2s" not in admin.get(page_of(NOUN, backfill)).content.decode()


def advance_settled() -> Any:
    """Take the backfills further, as Beat does once it has seen what was edited."""
    Schedule.objects.update(stale=False)
    return advance()
