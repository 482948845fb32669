"""What a schedule is going to do, or would: by its rows, whether Beat has seen their last edit or not."""

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from itertools import chain, islice

from runs.db.sql import database_now
from triggers.exceptions import RuleError
from triggers.models import Schedule
from triggers.schedules.calendars import calendars_named
from triggers.schedules.clock import zone_of
from triggers.schedules.definition import spec_of
from triggers.schedules.plan import Plan
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.rows import rule_of
from triggers.schedules.rules.rule import Rule
from triggers.schedules.terms.excluded_days import ExcludedDays
from triggers.schedules.terms.policy import SchedulePolicy

DEFAULT = SchedulePolicy()


def upcoming(schedule: Schedule, count: int = 10) -> list[datetime]:
    """Its next nominal times that fire, in its own zone; none if it is off or cannot fire. Reads its task and calendars."""
    try:
        zone = _zone(rule_of(schedule.task), SchedulePolicy.of(schedule))
        return [fire.astimezone(zone) for fire in islice(_fires_ahead(schedule), count)]
    except RuleError:
        return []


def preview(rule: Rule, policy: SchedulePolicy = DEFAULT, count: int = 10) -> list[datetime]:
    """The next nominal times that such a schedule would fire at, in its own zone; RuleError if it never would."""
    policy.check()
    refuse_never(rule, policy)
    fires = islice(_plan(rule, policy).fires(database_now()), policy.max_fires)
    return [fire.astimezone(_zone(rule, policy)) for fire in islice(fires, count)]


def describe(schedule: Schedule) -> str:
    """Its rule in words, such as "At 09:00, Monday through Friday (Europe/Vienna)", or what is wrong with it."""
    try:
        return rule_of(schedule.task).words
    except RuleError as error:
        return str(error)


def plan_of(schedule: Schedule) -> Plan:
    """When it fires while it is on, by its rows; RuleError if they say nothing that can be carried out."""
    task, policy = schedule.task, SchedulePolicy.of(schedule)
    days = [(calendar.slug, ExcludedDays.parse(calendar.days)) for calendar in schedule.exclude.all()]
    rule = rule_of(task, _anchor(schedule))
    return policy.plan(rule, days=days, seed=str(schedule.pk), once=task.one_off)


def _anchor(schedule: Schedule) -> datetime | None:
    """Of its interval, as Beat will have it where Beat has not seen its last edit yet."""
    task = schedule.task
    if schedule.stale and (schedule.next_fire_at is None or spec_of(rule_of(task), task.start_time) != schedule.spec):
        return task.start_time or schedule.edited_at
    return schedule.anchor_at


def _fires_ahead(schedule: Schedule) -> Iterator[datetime]:
    if not schedule.task.enabled:
        return
    plan = plan_of(schedule)
    if schedule.stale:
        # Beat has not seen the edit yet, but this is what it will make of it.
        fires = plan.fires(schedule.edited_at)
    elif schedule.next_fire_at:
        later = () if schedule.task.one_off else plan.fires(schedule.next_fire_at)
        fires = chain([schedule.next_fire_at], later)
    else:
        return
    left = None if schedule.max_fires is None else max(0, schedule.max_fires - schedule.fires)
    yield from islice(fires, left)


def _plan(rule: Rule, policy: SchedulePolicy) -> Plan:
    days = [(calendar.slug, ExcludedDays.parse(calendar.days)) for calendar in calendars_named(policy.exclude)]
    return policy.plan(rule, days=days, once=isinstance(rule, Clocked))


def _zone(rule: Rule, policy: SchedulePolicy) -> tzinfo:
    if isinstance(rule, Cron):
        return rule.zone
    return zone_of(policy.active_zone) if policy.active_zone else UTC


def refuse_never(rule: Rule, policy: SchedulePolicy) -> None:
    """RuleError if such a schedule would never fire; its `field` names what to change."""
    if policy.kind == "heartbeat" and not isinstance(rule, Interval):
        raise RuleError(f'{rule.words}: a heartbeat comes every so often; write such as "every 30m"', field="when")
    if policy.kind == "reminder" and not isinstance(rule, Clocked):
        raise RuleError(f"{rule.words}: a reminder comes once; make a schedule for what repeats", field="when")
    if is_past(rule):
        raise RuleError(f"{rule.words}: that is past, so it would never fire", field="when")
    plan = _plan(rule, policy)
    if next(plan.fires(database_now()), None) is not None:
        return
    nominal = next(plan.raw(database_now()), None)
    if nominal is None:
        raise RuleError(f"{rule.words}: that leaves no time between its start and its end", field="end")
    closure = plan.closed(nominal)
    field = "exclude" if closure and closure.reason == "excluded" else "active_hours"
    raise RuleError(
        f"{rule.words}: every fire is closed out ({closure and closure.detail}); open a time for it", field=field
    )


def is_past(rule: Rule) -> bool:
    """Is its only instant past?"""
    return isinstance(rule, Clocked) and rule.at <= database_now()
