"""Nothing that should fire is forgotten, whoever wrote the rows and however."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from tests.triggers.test_beat import HOUR, NINE, every, make_schedule
from triggers.models import Schedule, Trigger
from triggers.schedules.firing import due_schedules
from triggers.schedules.firing.reconcile import Walk, rearm

pytestmark = pytest.mark.django_db


@contextmanager
def triggers_disabled() -> Iterator[None]:
    """As while a dump is being restored."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        yield
        cursor.execute("SET LOCAL session_replication_role = origin")


def test_enabled_schedule_without_a_next_fire_is_armed_again() -> None:
    schedule = make_schedule(every(HOUR))
    Schedule.objects.filter(pk=schedule.pk).update(next_fire_at=None, due_at=None)

    assert due_schedules.find_due().has_unarmed
    assert rearm() == 1
    due_schedules.settle()

    schedule.refresh_from_db()
    assert schedule.next_fire_at == NINE + HOUR
    assert not due_schedules.find_due().has_unarmed


def test_a_schedule_that_records_why_it_rests_is_left_alone() -> None:
    make_schedule(every(HOUR), enabled=False)

    assert not due_schedules.find_due().has_unarmed
    assert Walk().step() == 0


def test_task_restored_without_its_schedule_gets_one() -> None:
    schedule = make_schedule(every(HOUR))
    with triggers_disabled():
        Schedule.objects.filter(pk=schedule.pk).delete()

    assert Walk().step() == 1
    due_schedules.settle()

    restored = Schedule.objects.get(task=schedule.task_id)
    assert restored.next_fire_at is not None
    assert restored.trigger_id == schedule.trigger_id


def test_task_whose_trigger_was_deleted_fires_nothing() -> None:
    make_schedule(every(HOUR))
    Trigger.objects.all().delete()

    assert Walk().step() == 0
    assert not Schedule.objects.exists()


@pytest.mark.parametrize("enabled", [True, False])
def test_task_switched_behind_the_row_triggers_is_found(enabled: bool) -> None:
    schedule = make_schedule(every(HOUR), enabled=not enabled)
    with triggers_disabled():
        PeriodicTask.objects.filter(pk=schedule.task_id).update(enabled=enabled)

    walk = Walk()
    assert walk.step() == 1
    due_schedules.settle()

    schedule.refresh_from_db()
    assert (schedule.next_fire_at is not None) == enabled
    assert walk.step() == 0


@pytest.mark.parametrize("adopts", [True, False])
def test_task_that_a_beat_of_another_setting_has_settled_is_found(settings: Any, adopts: bool) -> None:
    settings.WAKEFUL_ADOPT_PERIODIC_TASKS = not adopts
    every_hour = IntervalSchedule.objects.create(every=1, period=IntervalSchedule.HOURS)
    task = PeriodicTask.objects.create(name="report", task="shop.report", interval=every_hour)
    due_schedules.settle()
    assert Walk().step() == 0

    settings.WAKEFUL_ADOPT_PERIODIC_TASKS = adopts
    assert Walk().step() == 1
    due_schedules.settle()

    assert (Schedule.objects.get(task=task).due_at is not None) == adopts
    assert Walk().step() == 0


def test_walk_begins_again_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triggers.schedules.firing.reconcile.PIECE", 1)
    ids = sorted(make_schedule(every(HOUR), name=name).task_id for name in ("one", "two"))
    walk = Walk()

    reached = []
    for _ in range(4):
        walk.step()
        reached.append(walk.reached)

    assert reached == [ids[0], ids[1], 0, ids[0]]
