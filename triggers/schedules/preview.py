"""Preview the fires of a schedule by its rows, whether Beat has seen their last edit or not."""

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from itertools import chain, islice

from runs.db.sql import database_now
from triggers.exceptions import RuleError
from triggers.models import Schedule
from triggers.schedules.clock import zone_of
from triggers.schedules.definition import Draft
from triggers.schedules.plans import fired_elsewhere, is_done_elsewhere, next_fire, plan_of
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.rows import rule_of
from triggers.schedules.rules.rule import Rule
from triggers.schedules.terms.policy import SchedulePolicy

DEFAULT = SchedulePolicy()


def upcoming(schedule: Schedule, count: int = 10) -> list[datetime]:
    """The schedule's next nominal times that fire, in its own zone; none if it is off or cannot fire. Reads its task
    and calendars.
    """
    try:
        zone = _zone(rule_of(schedule.task), schedule.active_zone)
        return [fire.astimezone(zone) for fire in islice(_fires_ahead(schedule), count)]
    except RuleError:
        return []


def preview(rule: Rule, policy: SchedulePolicy = DEFAULT, count: int = 10) -> list[datetime]:
    """The next nominal times that such a schedule would fire at, in its own zone; RuleError if it never would."""
    policy.check()
    refuse_never(rule, policy)
    fires = islice(plan_of(Draft(rule, policy)).fires(database_now()), policy.max_fires)
    return [fire.astimezone(_zone(rule, policy.active_zone)) for fire in islice(fires, count)]


def describe(schedule: Schedule) -> str:
    """The schedule's rule in words, such as "At 09:00, Monday through Friday (Europe/Vienna)", or the problem with
    it.
    """
    try:
        return rule_of(schedule.task).words
    except RuleError as error:
        return str(error)


def _fires_ahead(schedule: Schedule) -> Iterator[datetime]:
    if not schedule.task.enabled:
        return
    plan, elsewhere = plan_of(schedule), fired_elsewhere(schedule)
    if schedule.stale:
        # Beat has not seen the edit yet, but it will arm the schedule so.
        is_done = is_done_elsewhere(plan, elsewhere)
        fires = iter(()) if is_done else plan.fires(max(schedule.edited_at, elsewhere or schedule.edited_at))
    elif first := next_fire(schedule, plan):
        fires = chain([first], () if plan.once else plan.fires(first))
    else:
        return
    left = None if schedule.max_fires is None else max(0, schedule.max_fires - schedule.fires)
    yield from islice(fires, left)


def _zone(rule: Rule, active_zone: str) -> tzinfo:
    if isinstance(rule, Cron):
        return rule.zone
    return zone_of(active_zone) if active_zone else UTC


def refuse_never(rule: Rule, policy: SchedulePolicy) -> None:
    """RuleError if such a schedule would never fire; its `field` names what to change."""
    if policy.kind == "heartbeat" and not isinstance(rule, Interval):
        raise RuleError(f'{rule.words}: a heartbeat needs an interval; write such as "every 30m"', field="when")
    if policy.kind == "reminder" and not isinstance(rule, Clocked):
        raise RuleError(f"{rule.words}: a reminder comes once; make a schedule for what repeats", field="when")
    if is_past(rule):
        raise RuleError(f"{rule.words}: that is past, so it would never fire", field="when")
    plan = plan_of(Draft(rule, policy))
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
    """Is the only instant of the rule past?"""
    return isinstance(rule, Clocked) and rule.at <= database_now()
