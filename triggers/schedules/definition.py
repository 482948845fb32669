"""The definition of a schedule: read from its rows, from a revision that an edit left, or from a draft of rows.

One form for all of them, the JSON that the database function `triggers_state` makes of the rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from triggers.exceptions import RuleError
from triggers.models import Revision, Schedule
from triggers.schedules.calendars import calendars_named
from triggers.schedules.clock import instant_from_row, zone_of
from triggers.schedules.excluded_days import ExcludedDays
from triggers.schedules.plan import Plan
from triggers.schedules.rules.interval import LONGEST
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.rows import columns_of, columns_of_task, rule_from
from triggers.schedules.rules.rule import Rule
from triggers.schedules.terms.active_hours import ActiveHours
from triggers.schedules.terms.policy import SchedulePolicy

STATE = """triggers_state(periodic, crontab, "interval", clocked, solar, schedule)"""
ROWS = """
triggers_schedule schedule JOIN django_celery_beat_periodictask periodic ON periodic.id = schedule.task_id
LEFT JOIN django_celery_beat_crontabschedule crontab ON crontab.id = periodic.crontab_id
LEFT JOIN django_celery_beat_intervalschedule "interval" ON "interval".id = periodic.interval_id
LEFT JOIN django_celery_beat_clockedschedule clocked ON clocked.id = periodic.clocked_id
LEFT JOIN django_celery_beat_solarschedule solar ON solar.id = periodic.solar_id
"""


@dataclass(frozen=True)
class Draft:
    """A rule and a policy that have no rows yet."""

    rule: Rule
    policy: SchedulePolicy


@dataclass(frozen=True)
class Definition:
    """The columns of a schedule's rows that decide when it fires; `values` as `triggers_state` gives them."""

    schedule_id: int | None
    values: Mapping[str, Any]

    @classmethod
    def of(cls, source: Schedule | Revision | Draft) -> "Definition":
        """RuleError if no row can hold a draft, or it names a calendar that does not exist."""
        match source:
            case Schedule():
                return cls(source.pk, _values_of_rows(source))
            case Revision():
                return cls(source.schedule_id, source.state)
            case Draft():
                return cls(None, _values_of_draft(source))

    @property
    def enabled(self) -> bool:
        return bool(self.values["enabled"])

    @property
    def one_off(self) -> bool:
        return bool(self.values["one_off"])

    @property
    def start(self) -> datetime | None:
        return _instant(self.values.get("start"))

    @property
    def end(self) -> datetime | None:
        return _instant(self.values.get("end"))

    @property
    def anchor(self) -> datetime | None:
        """The instant that the interval counted from when Beat saw the schedule last; see `plans`."""
        return _instant(self.values.get("anchor"))

    @property
    def catch_up(self) -> str:
        return str(self.values["catch_up"])

    @property
    def catch_up_max(self) -> int | None:
        return self.values.get("catch_up_max")

    @property
    def catch_up_window(self) -> timedelta | None:
        seconds = self.values.get("catch_up_window")
        return None if seconds is None else _length(seconds)

    @property
    def max_fires(self) -> int | None:
        return self.values.get("max_fires")

    @property
    def zone(self) -> ZoneInfo:
        """The zone of its crontab; UTC if it has none. RuleError if there is no such zone."""
        crontab = self.values.get("crontab")
        return zone_of(crontab["zone"] if crontab else "UTC")

    @property
    def clock(self) -> ZoneInfo:
        """The zone of its crontab, else that of its active hours, or UTC. RuleError as `zone`."""
        own = "" if self.values.get("crontab") else self.values.get("active_zone")
        return zone_of(own) if own else self.zone

    @property
    def spec(self) -> str:
        """The rule and its start, to detect whether an edit changed them; RuleError as `rule`."""
        rule, start = self.rule(), self.start
        return f"{rule}, from {start.isoformat()}" if start else str(rule)

    def rule(self, anchor: datetime | None = None) -> Rule:
        """RuleError if its rows have no valid rule."""
        return rule_from(self.values, anchor)

    def plan(self, anchor: datetime | None) -> Plan:
        """When it fires while it is enabled; an interval counts from `anchor`. RuleError as `rule`."""
        own = self.values.get("active_zone")
        return Plan(
            rule=self.rule(anchor),
            zone=zone_of(own) if own else self.zone,
            start=self.start,
            end=self.end,
            hours=_hours(self.values["active_hours"]) if self.values["active_hours"] else None,
            days=[(slug, _days(days)) for slug, days in sorted(self.values.get("exclude", {}).items())],
            jitter=_length(self.values["jitter"]),
            spread=_length(self.values["spread"]),
            seed=str(self.schedule_id or ""),
            once=self.one_off,
        )

    def describe(self) -> str:
        """The schedule's rule in words, or the problem with it."""
        try:
            return self.rule().words
        except RuleError as error:
            return str(error)


def _values_of_rows(schedule: Schedule) -> dict[str, Any]:
    task = schedule.task
    values = {
        **_values_of_policy(SchedulePolicy.of(schedule)), **columns_of_task(task), "name": task.name,
        "enabled": task.enabled, "one_off": task.one_off, "spec": schedule.spec,
        "exclude": {calendar.slug: calendar.days for calendar in schedule.exclude.all()},
        "anchor": schedule.anchor_at and schedule.anchor_at.isoformat(),
    }  # fmt: skip
    return {name: value for name, value in values.items() if value not in (None, {})}


def _values_of_draft(draft: Draft) -> dict[str, Any]:
    return {
        **_values_of_policy(draft.policy), **columns_of(draft.rule),
        "enabled": True, "one_off": isinstance(draft.rule, Clocked),
        "exclude": {calendar.slug: calendar.days for calendar in calendars_named(draft.policy.exclude)},
    }  # fmt: skip


def _values_of_policy(policy: SchedulePolicy) -> dict[str, Any]:
    return {name: _whole(value) for name, value in policy.dump().items()}


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value  # as PostgreSQL writes it


def _instant(text: str | None) -> datetime | None:
    return instant_from_row(text) if text else None


def _length(seconds: Any) -> timedelta:
    if not isinstance(seconds, (int, float)) or not seconds <= LONGEST.total_seconds():
        raise RuleError(f"a length of {seconds} s is more than 100 years")
    return timedelta(seconds=seconds)


@lru_cache(1000)
def _hours(text: str) -> ActiveHours:
    return ActiveHours.parse(text)


@lru_cache(1000)
def _days(text: str) -> ExcludedDays:
    return ExcludedDays.parse(text)
