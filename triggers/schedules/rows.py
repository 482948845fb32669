"""A schedule's rows: ours, and django-celery-beat's beside it."""

import json

from django.db import transaction
from django_celery_beat.models import PeriodicTask

from triggers.models import Backfill, Schedule, Trigger
from triggers.schedules.own_tasks import FIRE_TASK
from triggers.schedules.preview import DEFAULT, is_past
from triggers.schedules.rules.rows import point
from triggers.schedules.rules.rule import Rule
from triggers.schedules.terms.policy import SchedulePolicy

RELATED = ("task__crontab", "task__interval", "task__clocked", "task__solar", "trigger")  # what a rule is read from
VANISHED = "vanished"  # in `Trigger.declared`: what was on when the declaration went


def add_schedule(trigger: Trigger, *, name: str, rule: Rule, policy: SchedulePolicy = DEFAULT) -> Schedule:
    """A new PeriodicTask with its Schedule, which the task's table made itself; off if it is for an instant that is past."""
    task = PeriodicTask(name=name, task=FIRE_TASK, args=json.dumps([trigger.slug]), enabled=not is_past(rule))
    task.start_time, task.expires = policy.start, policy.end
    point(task, rule)
    with transaction.atomic():
        task.save()
        Schedule.objects.filter(task=task).update(trigger=trigger)
        schedule = Schedule.objects.select_related("task", "trigger").get(task=task)
        policy.apply(schedule)
    return read_again(schedule)


def set_rule(schedule: Schedule, rule: Rule) -> None:
    """Let its task follow another rule; a one-shot that has fired is armed again, but never for an instant that is past."""
    task = PeriodicTask.objects.select_related("wakeful").get(pk=schedule.task_id)
    has_fired = task.one_off and task.wakeful.last_fire_at is not None
    task.enabled = (task.enabled or has_fired) and not is_past(rule)
    point(task, rule)
    task.save()


def set_enabled(schedule: Schedule, enabled: bool) -> None:
    task = PeriodicTask.objects.get(pk=schedule.task_id)
    task.enabled = enabled
    if enabled and task.one_off:
        task.total_run_count = 0  # else django-celery-beat's own scheduler would take it for one that has fired
    task.save()


def remove(schedule: Schedule) -> None:
    """Delete it with its task."""
    with transaction.atomic():
        # Locked, so that no tick is added to a backfill that is being deleted.
        list(Backfill.objects.select_for_update().filter(schedule=schedule).values_list("pk"))
        PeriodicTask.objects.get(pk=schedule.task_id).delete()


def read_again(schedule: Schedule) -> Schedule:
    return Schedule.objects.select_related(*RELATED).get(pk=schedule.pk)
