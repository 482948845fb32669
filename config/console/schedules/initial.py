"""The initial form values of an existing schedule."""

from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from agents.kernel.durations import text_of_duration
from config.console.parts.time_field import FORMAT
from config.console.schedules.policy_fields import POLICY
from config.console.schedules.words import zone_of_schedule
from triggers.exceptions import RuleError
from triggers.models import Schedule
from triggers.schedules.reminders import text_of
from triggers.schedules.rules.rows import rule_of
from triggers.schedules.rules.words import text_of_rule
from triggers.schedules.terms.policy import SchedulePolicy


def as_initial(schedule: Schedule) -> dict[str, Any]:
    """The form values of an existing schedule."""
    zone = zone_of_schedule(schedule)
    policy = SchedulePolicy.of(schedule)
    values = {name: getattr(policy, name) for name in POLICY}
    typed = {name: text_of_duration(value) if isinstance(value, timedelta) else value for name, value in values.items()}
    for name in ("start", "end"):
        typed[name] = f"{values[name].astimezone(zone):{FORMAT}}" if values[name] else ""
    if text := text_of(schedule):
        typed |= {"text": text, "data": None}
    return {**typed, "exclude": list(policy.exclude), "when": _when(schedule, zone), "tz": str(zone)}


def _when(schedule: Schedule, zone: ZoneInfo) -> str:
    try:
        return text_of_rule(rule_of(schedule.task), zone)
    except RuleError:
        return ""
