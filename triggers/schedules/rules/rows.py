"""Rules as rows of django-celery-beat, and as JSON of their columns, which revisions keep (`triggers_state` in the database).
Such a row is never edited, for others may share it: a changed rule is another row."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule

from triggers.exceptions import RuleError
from triggers.schedules.clock import instant_from_row, zone_of
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.rule import Rule
from triggers.schedules.rules.sun import Solar


def rule_of(task: PeriodicTask) -> Rule:
    """The rule of a task's rows; RuleError if they have no valid rule."""
    return rule_from(columns_of_task(task))


def columns_of_task(task: PeriodicTask) -> dict[str, Any]:
    if row := task.crontab:
        return {
            "crontab": {
                "minute": row.minute, "hour": row.hour, "day_of_month": row.day_of_month, "month": row.month_of_year,
                "day_of_week": row.day_of_week, "zone": str(row.timezone),
            }
        }  # fmt: skip
    if row := task.interval:
        return {"interval": {"every": row.every, "period": row.period}}
    if row := task.clocked:
        return {"clocked": row.clocked_time.isoformat()}
    if row := task.solar:
        return {"solar": {"event": row.event, "latitude": float(row.latitude), "longitude": float(row.longitude)}}
    return {}


def columns_of(rule: Rule) -> dict[str, Any]:
    """RuleError if no row can hold the rule."""
    match rule:
        case Cron():
            return {
                "crontab": {
                    "minute": rule.minute, "hour": rule.hour, "day_of_month": rule.day_of_month, "month": rule.month,
                    "day_of_week": rule.day_of_week, "zone": str(rule.zone),
                }
            }  # fmt: skip
        case Interval():
            return {"interval": _interval_columns(rule)}
        case Clocked():
            return {"clocked": rule.at.isoformat()}
        case Solar():
            return {"solar": {"event": rule.event, "latitude": rule.latitude, "longitude": rule.longitude}}


def rule_from(columns: Mapping[str, Any], anchor: datetime | None = None) -> Rule:
    """RuleError if the columns have no valid rule."""
    if crontab := columns.get("crontab"):
        return _cron(**crontab)
    if interval := columns.get("interval"):
        return _interval(interval["every"], interval["period"], anchor)
    if clocked := columns.get("clocked"):
        return Clocked(at=instant_from_row(clocked))
    if solar := columns.get("solar"):
        return Solar(event=solar["event"], latitude=float(solar["latitude"]), longitude=float(solar["longitude"]))
    raise RuleError("it has no crontab, interval, clocked time or solar event")


def point(task: PeriodicTask, rule: Rule) -> None:
    """Let a task follow a rule, by a row of it that others may share; the task is not saved."""
    task.crontab = task.interval = task.clocked = task.solar = None
    task.one_off = isinstance(rule, Clocked)
    if isinstance(rule, Cron):
        task.crontab = _crontab_row(rule)
    elif isinstance(rule, Interval):
        columns = _interval_columns(rule)
        task.interval = IntervalSchedule.objects.filter(**columns).first() or IntervalSchedule.objects.create(**columns)
    elif isinstance(rule, Solar):
        place = {"latitude": Decimal(str(rule.latitude)), "longitude": Decimal(str(rule.longitude))}
        task.solar = SolarSchedule.objects.get_or_create(event=rule.event, **place)[0]
    else:
        task.clocked = ClockedSchedule.objects.get_or_create(clocked_time=rule.at)[0]


@lru_cache(10_000)  # thousands of schedules share a few rules
def _cron(minute: str, hour: str, day_of_month: str, month: str, day_of_week: str, zone: str) -> Cron:
    return Cron(
        minute=minute, hour=hour, day_of_month=day_of_month, month=month, day_of_week=day_of_week, zone=zone_of(zone)
    )


def _interval(every: int, period: str, anchor: datetime | None) -> Interval:
    try:
        return Interval(every=timedelta(**{period: every}), anchor=anchor)
    except TypeError:
        raise RuleError(f"there is no period {period!r}; use days, hours, minutes, seconds or microseconds") from None
    except OverflowError:
        raise RuleError(f"an interval of {every} {period} leaves the calendar") from None


def _interval_columns(rule: Interval) -> dict[str, Any]:
    for period in ("days", "hours", "minutes", "seconds", "microseconds"):
        every, rest = divmod(rule.every, timedelta(**{period: 1}))
        if not rest and every < 2**31:
            return {"every": every, "period": period}
    raise RuleError(f"{rule.words} is too precise for its length; give it in whole seconds")


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
