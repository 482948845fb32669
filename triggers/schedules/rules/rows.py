"""Rules as rows of django-celery-beat. Such a row is never edited, for others may share it: a changed rule is another row."""

from datetime import datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule

from triggers.exceptions import RuleError
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.rule import Rule
from triggers.schedules.rules.sun import Solar


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
        return interval_of(interval.every, interval.period, anchor)
    if task.clocked:
        return Clocked(at=task.clocked.clocked_time)
    if task.solar:
        return Solar(event=task.solar.event, latitude=float(task.solar.latitude), longitude=float(task.solar.longitude))
    raise RuleError("it has no crontab, interval, clocked time or solar event")


def interval_of(every: int, period: str, anchor: datetime | None) -> Interval:
    """What a row of intervals says; RuleError if that is none."""
    try:
        return Interval(every=timedelta(**{period: every}), anchor=anchor)
    except TypeError:
        raise RuleError(f"there is no period {period!r}; use days, hours, minutes, seconds or microseconds") from None
    except OverflowError:
        raise RuleError(f"an interval of {every} {period} leaves the calendar") from None


def point(task: PeriodicTask, rule: Rule) -> None:
    """Let a task follow a rule, by a row of it that others may share; the task is not saved."""
    task.crontab = task.interval = task.clocked = task.solar = None
    task.one_off = isinstance(rule, Clocked)
    if isinstance(rule, Cron):
        task.crontab = _crontab_row(rule)
    elif isinstance(rule, Interval):
        task.interval = _interval_row(rule)
    elif isinstance(rule, Solar):
        place = {"latitude": Decimal(str(rule.latitude)), "longitude": Decimal(str(rule.longitude))}
        task.solar = SolarSchedule.objects.get_or_create(event=rule.event, **place)[0]
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
