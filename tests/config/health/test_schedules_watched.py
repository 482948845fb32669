"""What schedules do not do is never silent: pages, doctor, metrics and alarms tell of it."""

import io
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django_celery_beat.models import CrontabSchedule, PeriodicTask

from config.health import doctor
from config.health.problems import problems
from config.health.situation import read_situation
from runs.db.sql import database_now
from runs.models import Worker
from runs.sign import Problem
from tests.config.health.test_metrics import scrape
from tests.support.triggers import make_trigger
from triggers.models import Schedule, Skip
from triggers.schedules.explain.missed_fires import missed_lately
from triggers.schedules.firing import due_schedules

pytestmark = pytest.mark.django_db

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def make_schedule(name: str = "digest", **columns: Any) -> Schedule:
    """A schedule of every hour that Beat has settled, with columns as a test needs them."""
    crontab = CrontabSchedule.objects.create(minute="0")
    task = PeriodicTask.objects.create(name=name, task="t", crontab=crontab)
    due_schedules.settle()
    Schedule.objects.filter(task=task).update(trigger=make_trigger(name, types=[]))
    Schedule.objects.filter(task=task).update(**columns)
    return Schedule.objects.select_related("task").get(task=task)


def make_skip(schedule: Schedule, reason: str, at: datetime, **fields: Any) -> Skip:
    return Skip.objects.create(schedule=schedule, reason=reason, first=at, last=at, **{"count": 1, **fields})


def beat_is_alive() -> None:
    Worker.objects.create(kind="beat", host="a", pid=1, version="1")


def found() -> dict[str, Problem]:
    return {problem.name: problem for problem in problems(read_situation())}


def test_a_schedule_is_late_from_its_due_time_on_not_from_its_nominal_one() -> None:
    beat_is_alive()
    now = database_now()
    schedule = make_schedule(next_fire_at=now - 10 * MINUTE, due_at=now + MINUTE)

    assert "schedules" not in found()

    Schedule.objects.filter(pk=schedule.pk).update(due_at=now - 5 * MINUTE)
    assert "1 schedule is late, the most overdue by 5 min" in found()["schedules"].text
    assert found()["schedules"].is_alarm


def test_the_problem_of_a_missing_beat_counts_late_schedules() -> None:
    now = database_now()
    make_schedule(next_fire_at=now - 10 * MINUTE, due_at=now - 10 * MINUTE)

    assert "1 schedule is late." in found()["no-beat"].text


def test_an_edit_that_beat_does_not_take_up_is_reported() -> None:
    beat_is_alive()
    make_schedule(stale=True, edited_at=database_now() - 3 * MINUTE)

    assert "1 edited schedule is waiting for a new next fire, the oldest for 3 min" in found()["edits"].text


def test_a_schedule_that_cannot_fire_is_named_with_the_fault() -> None:
    beat_is_alive()
    make_schedule("sound")
    make_schedule("broken")
    CrontabSchedule.objects.filter(periodictask__name="broken").update(hour="25")

    due_schedules.settle()

    assert "broken (hour 25 is not between 0 and 23)" in found()["schedules-broken"].text
    assert "sound" not in found()["schedules-broken"].text
    assert found()["schedules-broken"].is_alarm


def test_missed_fires_of_the_last_day_are_named() -> None:
    now = database_now()
    digest, cleanup, report = (make_schedule(name) for name in ("digest", "cleanup", "report"))
    make_skip(digest, "missed", now - HOUR, count=3)
    make_skip(digest, "most", now - 2 * HOUR)
    make_skip(cleanup, "inactive", now - HOUR)
    long_ago = make_skip(report, "missed", now - 30 * HOUR)
    Skip.objects.filter(pk=long_ago.pk).update(created_at=now - 29 * HOUR)

    [missed] = missed_lately(10)

    assert (missed.name, missed.count, missed.reasons) == ("digest", 4, "missed, most")
    assert (missed.first, missed.last) == (now - 2 * HOUR, now - HOUR)


def test_doctor_names_missed_fires_but_not_as_a_fault() -> None:
    make_skip(make_schedule(), "missed", database_now() - HOUR, count=12)

    [finding] = [one for one in doctor.processes() if one.text.startswith("schedules missed")]

    assert "digest (12 ×, missed)" in finding.text
    assert not finding.fix


def test_the_first_page_names_missed_fires(admin_client: Client) -> None:
    page = admin_client.get("/admin/").content.decode()
    assert "missed in the last day" not in page

    make_skip(make_schedule(), "window", database_now() - HOUR, count=12)

    page = admin_client.get("/admin/").content.decode()
    assert "missed in the last day" in page


def test_metrics_show_fires_skips_and_the_next_due_time() -> None:
    now = database_now()
    schedule = make_schedule(next_fire_at=now + MINUTE, due_at=now + 2 * MINUTE)
    make_skip(schedule, "missed", now - HOUR, count=3)
    make_skip(schedule, "paused", now - MINUTE, count=None)

    before = scrape()
    due_schedules.fire_due(now + 2 * MINUTE)
    after = scrape()

    assert (before["wakeful_schedule_skips", "missed"], before["wakeful_schedule_skips", "paused"]) == (3, 1)
    assert 100 < before["wakeful_schedule_next_seconds",] <= 120
    assert (before["wakeful_schedule_fires",], after["wakeful_schedule_fires",]) == (0, 1)


# The tables are emptied first (the test's transaction takes that back): statistics and pages then come from these rows alone,
# whatever earlier tests have left behind.
MANY = """
SET LOCAL session_replication_role = replica;
TRUNCATE django_celery_beat_periodictask CASCADE;
INSERT INTO django_celery_beat_periodictask
  (id, name, task, args, kwargs, headers, enabled, one_off, total_run_count, date_changed, description)
  SELECT n, 's' || n, 't', '[]', '{}', '{}', true, false, 0, now(), '' FROM generate_series(100000, 120000) n;
INSERT INTO triggers_schedule (task_id, next_fire_at, due_at, accounted_until, stale)
  SELECT n, now() + interval '1 hour', now() + interval '1 hour' + n * interval '1 ms', now(), false
  FROM generate_series(100000, 120000) n;
INSERT INTO triggers_skip (schedule_id, reason, first, last, count, created_at)
  SELECT 1, 'inactive', at, at, 1, at
  FROM generate_series(now() - interval '20000 minutes', now(), interval '1 minute') at;
SET LOCAL session_replication_role = origin;
ANALYZE triggers_skip, triggers_schedule, django_celery_beat_periodictask
"""
TABLES = ["triggers_skip", "triggers_schedule", "django_celery_beat_periodictask"]


def test_among_many_nothing_is_read_from_end_to_end() -> None:
    with connection.cursor() as cursor:
        for statement in MANY.split(";"):
            cursor.execute(statement)
        before = scans(cursor)

        missed_lately(10)
        read_situation()
        scrape()

        assert scans(cursor) == before


def scans(cursor: Any) -> dict[str, int]:
    """How often each table has been read from end to end in this transaction."""
    cursor.execute("SELECT relname, seq_scan FROM pg_stat_xact_user_tables WHERE relname = ANY(%s)", [TABLES])
    return dict(cursor.fetchall())


def test_doctor_prints_the_remedy_for_missed_fires() -> None:
    make_skip(make_schedule(), "missed", database_now() - HOUR, count=12)
    output = io.StringIO()

    with pytest.raises(SystemExit):
        call_command("doctor", stdout=output)

    assert "manage.py schedules why NAME --at TIME" in output.getvalue()
