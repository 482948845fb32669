"""`manage.py schedules`: what an operator asks and does at the command line."""

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django_celery_beat.models import CrontabSchedule, PeriodicTask

from runs.models import AuditEntry
from tests.triggers.api.test_schedules import make_schedule
from triggers.models import Schedule
from triggers.schedules.firing import due_schedules
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval

pytestmark = pytest.mark.django_db


def output_of(*arguments: str) -> str:
    out = io.StringIO()
    call_command("schedules", *arguments, stdout=out)
    return out.getvalue()


def test_schedules_are_listed_soonest_first() -> None:
    make_schedule(name="daily")
    make_schedule(Interval.parse("1m"), name="often")
    make_schedule(Cron.parse("0 8 * * *"), name="broken")
    CrontabSchedule.objects.filter(periodictask__name="broken").update(hour="25")
    due_schedules.settle()

    header, *rows = output_of().splitlines()

    assert header.split() == ["schedule", "status", "next", "(UTC)", "fires", "rule"]
    assert [row.split()[:2] for row in rows] == [["often", "active"], ["daily", "active"], ["broken", "problem"]]
    assert "hour 25 is not between 0 and 23" in rows[2]


def test_the_list_comes_as_json_too() -> None:
    schedule = make_schedule()

    [one] = json.loads(output_of("--json"))

    assert (one["id"], one["name"], len(one["next_fires"])) == (schedule.pk, "digest", 10)


def test_the_why_command_prints_the_answer_and_its_facts() -> None:
    make_schedule()

    answer, *facts = output_of("why", "digest", "--at", "2050-03-07T09:00").splitlines()

    assert answer.startswith("It is still to come: it fires at Mon 7 Mar 2050, 09:00 (Europe/Vienna).")
    assert "  Rule then: At 09:00 (Europe/Vienna)" in facts


def test_why_reads_another_clock_and_comes_as_json() -> None:
    make_schedule()

    answer = json.loads(output_of("why", "digest", "--at", "2050-03-07T17:00", "--tz", "Asia/Tokyo", "--json"))

    assert (answer["verdict"], answer["nominal"]) == ("to_come", "2050-03-07T08:00:00Z")


def test_a_schedule_is_paused_with_a_note_and_resumed() -> None:
    schedule = make_schedule()

    assert output_of("pause", "digest", "--note", "the printer burns") == "digest is paused.\n"
    assert Schedule.objects.get().paused_note == "the printer burns"
    assert output_of("resume", str(schedule.pk)).startswith("digest is on; it fires next ")

    assert PeriodicTask.objects.get().enabled
    assert [entry.action for entry in AuditEntry.objects.order_by("id")] == ["pause", "resume"]


def test_the_next_fires_are_in_its_own_zone() -> None:
    make_schedule()

    rule, *fires = output_of("next", "digest", "--count", "3").splitlines()

    assert rule == "At 09:00 (Europe/Vienna): active"
    assert len(fires) == 3
    assert all("09:00:00 CE" in fire for fire in fires)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["why", "nobody", "--at", "2050-01-01T09:00"], "No such schedule: nobody"),
        (["why", "digest"], "--at"),
        (["why", "digest", "--at", "noon"], "is not a date and time"),
        (["why", "digest", "--at", "2050-01-01T09:00", "--tz", "Mars"], "no zone 'Mars'"),
        (["why", "digest", "--at", "0001-01-01T00:00"], "outside the calendar"),
        (["resume", "digest"], "active already"),
        (["dance"], "invalid choice"),
    ],
)
def test_invalid_arguments_are_refused_in_words(arguments: list[Any], message: str) -> None:
    make_schedule()

    with pytest.raises(CommandError, match=message):
        output_of(*arguments)
