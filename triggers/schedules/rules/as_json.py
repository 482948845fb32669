"""A rule as JSON: how the API, declarations and transfer files write it."""

from datetime import datetime, timedelta
from typing import Any

from triggers.exceptions import RuleError
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.rule import Rule
from triggers.schedules.rules.sun import Solar

Every = str | float | timedelta


def parse_rule(
    *,
    cron: str = "",
    tz: str = "UTC",
    every: Every | None = None,
    at: str | datetime | None = None,
    solar: str = "",
    latitude: float = 0.0,
    longitude: float = 0.0,
) -> Rule:
    """The rule that exactly one of cron (with tz), every, at and solar (with its place) gives; RuleError names the
    fault.
    """
    if bool(cron) + (every is not None) + (at is not None) + bool(solar) != 1:
        raise RuleError("give exactly one of cron, every, at and solar")
    if solar:
        return Solar(event=solar, latitude=latitude, longitude=longitude)
    if cron:
        return Cron.parse(cron, tz)
    return Interval.parse(every) if every is not None else Clocked.parse(at or "")


def rule_as_json(rule: Rule) -> dict[str, Any]:
    if isinstance(rule, Cron):
        return {"cron": rule.text, "tz": str(rule.zone)}
    if isinstance(rule, Interval):
        return {"every": rule.every.total_seconds()}
    if isinstance(rule, Solar):
        return {"solar": rule.event, "latitude": rule.latitude, "longitude": rule.longitude}
    return {"at": rule.at.isoformat()}
