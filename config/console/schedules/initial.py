"""The initial form values of an existing schedule."""

from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from config.console.parts.time_field import FORMAT
from config.console.schedules.policy_fields import POLICY
from config.console.schedules.words import zone_of_schedule
from triggers.exceptions import RuleError
from triggers.models import Schedule
from triggers.schedules.reminders import text_of
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.rows import rule_of
from triggers.schedules.terms.policy import SchedulePolicy

UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1), "s": timedelta(seconds=1)}


def as_initial(schedule: Schedule) -> dict[str, Any]:
    """The form values of an existing schedule."""
    zone = zone_of_schedule(schedule)
    policy = SchedulePolicy.of(schedule)
    values = {name: getattr(policy, name) for name in POLICY}
    typed = {name: _as_typed(value) if isinstance(value, timedelta) else value for name, value in values.items()}
    for name in ("start", "end"):
        typed[name] = f"{values[name].astimezone(zone):{FORMAT}}" if values[name] else ""
    if text := text_of(schedule):
        typed |= {"text": text, "data": None}
    return {**typed, "exclude": list(policy.exclude), "when": _when(schedule, zone), "tz": str(zone)}


def _when(schedule: Schedule, zone: ZoneInfo) -> str:
    try:
        rule = rule_of(schedule.task)
    except RuleError:
        return ""
    match rule:
        case Cron():
            return rule.text
        case Interval():
            return f"every {_as_typed(rule.every)}"
        case Clocked():
            return f"at {rule.at.astimezone(zone):%Y-%m-%dT%H:%M:%S}"
    return ""


def _as_typed(length: timedelta) -> str:
    """A duration in a form that parses to the same value, e.g. "1h30m"."""
    if not length:
        return ""
    left, parts = length, []
    for unit, size in UNITS.items():
        count, left = divmod(left, size)
        parts += [f"{count}{unit}"] if count else []
    if left:
        return f"{length.total_seconds():g}s"
    return "".join(parts)
