"""Schedules as rows: what a person does to one, and the only place that writes django-celery-beat's rows.

A rule's row is never edited, for others may share it: a changed rule is another row.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from zoneinfo import ZoneInfo

import structlog
from celery import Celery
from celery.schedules import crontab
from django.db import DatabaseError, transaction
from django.utils.text import slugify
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask
from django_celery_beat.schedulers import ModelEntry

from agents import registry
from agents.on import CatchUp
from runs.audit import record
from runs.exceptions import IllegalState
from runs.sql import database_now
from triggers import policies
from triggers.calendar import Clocked, Cron, Interval, Rule, RuleError, next_fires
from triggers.models import Schedule, Trigger

log = structlog.get_logger(__name__)

BACKEND_CLEANUP = {
    "task": "celery.backend_cleanup",
    "schedule": crontab("0", "4", "*"),
    "options": {"expire_seconds": 12 * 3600},
}
FIRE_TASK = "triggers.fire_schedule"  # what these rows do under another scheduler than ours
Every = str | float | timedelta


def create_schedule(
    *,
    name: str,
    agent: str = "",
    trigger: Trigger | None = None,
    cron: str = "",
    tz: str = "UTC",
    every: Every | None = None,
    at: str | datetime | None = None,
    catch_up: CatchUp = "latest",
    by: str,
) -> Schedule:
    """Wake an agent by a new trigger of its own, or an existing trigger, on a new schedule; RuleError if it makes no sense."""
    rule = parse_rule(cron=cron, tz=tz, every=every, at=at)
    _refuse_past(rule)
    _refuse_taken(name)
    with transaction.atomic():
        trigger = trigger or _create_trigger(name, agent)
        schedule = add_schedule(trigger, name=name, rule=rule, catch_up=catch_up)
        record(by, "create", schedule, name=name, rule=rule.words, catch_up=catch_up, trigger=trigger.slug)
    return schedule


def edit_schedule(
    schedule: Schedule,
    *,
    cron: str = "",
    tz: str = "UTC",
    every: Every | None = None,
    at: str | datetime | None = None,
    catch_up: CatchUp | None = None,
    by: str,
) -> Schedule:
    """Give it another rule (one of cron, every, at), another catch-up policy, or both; a deploy will keep these."""
    rule = parse_rule(cron=cron, tz=tz, every=every, at=at) if cron or every is not None or at is not None else None
    if rule:
        _refuse_past(rule)
    with transaction.atomic():
        if rule:
            set_rule(schedule, rule)
            _take_over(schedule, "rule")
        if catch_up:
            Schedule.objects.filter(pk=schedule.pk).update(catch_up=catch_up)
            _take_over(schedule, "catch_up")
        record(by, "edit", schedule, rule=rule.words if rule else None, catch_up=catch_up)
    schedule.refresh_from_db()
    return schedule


def pause_schedule(schedule: Schedule, by: str) -> Schedule:
    """Stop it until it is resumed; what falls in between is not missed and never caught up."""
    return _switch(schedule, False, "pause", by)


def resume_schedule(schedule: Schedule, by: str) -> Schedule:
    """Let it fire again, counted from now."""
    return _switch(schedule, True, "resume", by)


def parse_rule(
    *, cron: str = "", tz: str = "UTC", every: Every | None = None, at: str | datetime | None = None
) -> Rule:
    """The rule that exactly one of cron (with tz), every and at gives; RuleError says what is wrong with it."""
    if bool(cron) + (every is not None) + (at is not None) != 1:
        raise RuleError("give exactly one of cron, every and at")
    if cron:
        return Cron.parse(cron, tz)
    return Interval.parse(every) if every is not None else Clocked.parse(at or "")


def rule_of(task: PeriodicTask, anchor: datetime | None = None) -> Rule:
    """What a row's rule says; RuleError if it says nothing that can be carried out."""
    if crontab := task.crontab:
        return Cron(
            minute=crontab.minute,
            hour=crontab.hour,
            day_of_month=crontab.day_of_month,
            month=crontab.month_of_year,
            day_of_week=crontab.day_of_week,
            zone=ZoneInfo(str(crontab.timezone)),
        )
    if interval := task.interval:
        try:
            return Interval(every=timedelta(**{interval.period: interval.every}), anchor=anchor)
        except OverflowError:
            raise RuleError(f"an interval of {interval.every} {interval.period} leaves the calendar") from None
    if task.clocked:
        return Clocked(at=task.clocked.clocked_time)
    if task.solar:
        raise RuleError("solar rules are not supported; use a crontab, an interval or a clocked time")
    raise RuleError("it has no crontab, interval or clocked time")


def upcoming(schedule: Schedule, count: int = 5) -> list[datetime]:
    """Its next nominal times, in its own zone (UTC for intervals and clocked ones); none if it is off or cannot fire."""
    task = schedule.task
    zone = task.crontab.timezone if task.crontab else UTC
    try:
        return [fire.astimezone(zone) for fire in islice(_fires_ahead(schedule), count)]
    except RuleError:
        return []


def describe(schedule: Schedule) -> str:
    """Its rule in words, such as "At 09:00, Monday through Friday (Europe/Vienna)", or what is wrong with it."""
    try:
        return rule_of(schedule.task).words
    except RuleError as error:
        return str(error)


def _fires_ahead(schedule: Schedule) -> Iterator[datetime]:
    task = schedule.task
    if not task.enabled or schedule.problem:
        return
    if schedule.stale:
        # Beat has not seen the edit yet, but this is what it will make of it.
        fires = next_fires(rule_of(task, task.start_time), schedule.edited_at, start=task.start_time, end=task.expires)
    elif schedule.next_fire_at:
        later = next_fires(rule_of(task, schedule.anchor_at), schedule.next_fire_at, end=task.expires)
        fires = chain([schedule.next_fire_at], later)
    else:
        return
    yield from islice(fires, 1) if task.one_off else fires


# Writing the rows


def add_schedule(trigger: Trigger, *, name: str, rule: Rule, catch_up: CatchUp) -> Schedule:
    """A new PeriodicTask with its Schedule, which the task's table made itself; off if it is for an instant that is past."""
    task = PeriodicTask(name=name, task=FIRE_TASK, args=json.dumps([trigger.slug]), enabled=not is_past(rule))
    _point(task, rule)
    task.save()
    Schedule.objects.filter(task=task).update(trigger=trigger, catch_up=catch_up)
    return Schedule.objects.select_related("task", "trigger").get(task=task)


def set_rule(schedule: Schedule, rule: Rule) -> None:
    """Let its task follow another rule; a one-shot that has fired is armed again, but never for an instant that is past."""
    task = PeriodicTask.objects.select_related("wakeful").get(pk=schedule.task_id)
    has_fired = task.one_off and task.wakeful.last_fire_at is not None
    task.enabled = (task.enabled or has_fired) and not is_past(rule)
    _point(task, rule)
    task.save()


def set_enabled(schedule: Schedule, enabled: bool) -> None:
    task = PeriodicTask.objects.get(pk=schedule.task_id)
    task.enabled = enabled
    if enabled and task.one_off:
        task.total_run_count = 0  # else django-celery-beat's own scheduler would take it for one that has fired
    task.save()


def remove(schedule: Schedule) -> None:
    """Delete it with its task."""
    PeriodicTask.objects.get(pk=schedule.task_id).delete()


def install_static(app: Celery) -> None:
    """Write Celery's own static entries (`beat_schedule`) as rows, as django-celery-beat does."""
    entries = dict(app.conf.beat_schedule)
    if app.conf.result_expires:
        entries.setdefault("celery.backend_cleanup", BACKEND_CLEANUP)
    for name, entry in entries.items():
        try:
            ModelEntry.from_entry(name, app=app, **entry)
        except DatabaseError:
            raise
        except Exception:
            # One that makes no sense must not keep the others from firing.
            log.exception("beat.static_entry_refused", entry=name)


def _point(task: PeriodicTask, rule: Rule) -> None:
    task.crontab = task.interval = task.clocked = task.solar = None
    task.one_off = isinstance(rule, Clocked)
    if isinstance(rule, Cron):
        task.crontab = _crontab_row(rule)
    elif isinstance(rule, Interval):
        task.interval = _interval_row(rule)
    else:
        task.clocked = ClockedSchedule.objects.get_or_create(clocked_time=rule.at)[0]


def _crontab_row(rule: Cron) -> CrontabSchedule:
    fields = {
        "minute": rule.minute,
        "hour": rule.hour,
        "day_of_month": rule.day_of_month,
        "month_of_year": rule.month,
        "day_of_week": rule.day_of_week,
        "timezone": rule.zone,
    }
    return CrontabSchedule.objects.filter(**fields).first() or CrontabSchedule.objects.create(**fields)


def _interval_row(rule: Interval) -> IntervalSchedule:
    for period in ("days", "hours", "minutes", "seconds", "microseconds"):
        every, rest = divmod(rule.every, timedelta(**{period: 1}))
        if not rest and every < 2**31:
            fields = {"every": every, "period": period}
            return IntervalSchedule.objects.filter(**fields).first() or IntervalSchedule.objects.create(**fields)
    raise RuleError(f"{rule.words} is too precise for its length; give it in whole seconds")


def _switch(schedule: Schedule, enabled: bool, action: str, by: str) -> Schedule:
    with transaction.atomic():
        # Locked, so that of two who switch it only one is told that he did.
        task = PeriodicTask.objects.select_for_update().get(pk=schedule.task_id)
        if task.enabled == enabled:
            status = "active" if enabled else "paused"
            raise IllegalState(f"Schedule {task.name} is {status} already.", status=status)
        set_enabled(schedule, enabled)
        record(by, action, schedule, name=task.name)
    schedule.refresh_from_db()
    return schedule


def _take_over(schedule: Schedule, field: str) -> None:
    trigger = schedule.trigger
    if trigger and trigger.declared is not None and field not in trigger.overrides:
        trigger.overrides = sorted([*trigger.overrides, field])
        trigger.save(update_fields=["overrides"])


def _create_trigger(name: str, agent: str) -> Trigger:
    try:
        policy = policies.policy_of(registry.get(agent))
    except KeyError:
        known = ", ".join(known.name for known in registry.all_agents()) or "none"
        raise RuleError(f"there is no agent {agent!r}; the agents are: {known}") from None
    slug = slugify(name)[:100]
    if not slug or Trigger.objects.filter(slug=slug).exists():
        raise RuleError(f"{name!r} gives the trigger the slug {slug!r}, which is empty or taken; choose another name")
    return Trigger.objects.create(slug=slug, agent=agent, overlap=Trigger.Overlap.SKIP, policy=policy)


def _refuse_past(rule: Rule) -> None:
    if is_past(rule):
        raise RuleError(f"{rule.words}: that is past, so it would never fire")


def _refuse_taken(name: str) -> None:
    if not name.strip() or len(name) > 200:
        raise RuleError("a schedule's name has 1 to 200 characters")
    if PeriodicTask.objects.filter(name=name).exists():
        raise RuleError(f"there is a schedule {name!r} already; choose another name")


def is_past(rule: Rule) -> bool:
    """Is its only instant past?"""
    return isinstance(rule, Clocked) and rule.at <= database_now()
