"""What decides when a schedule fires, as it is and as it was: read from its rows, or from a Revision that an edit left.

One form for both, the JSON that the database function `triggers_state` makes of the rows.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from runs.db.sql import fetch
from triggers.exceptions import RuleError
from triggers.models import Revision, Schedule
from triggers.schedules.clock import refuse_beyond, zone_of
from triggers.schedules.plan import Plan
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import LONGEST
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.rows import interval_of
from triggers.schedules.rules.rule import Rule
from triggers.schedules.rules.sun import Solar
from triggers.schedules.terms.active_hours import ActiveHours
from triggers.schedules.terms.excluded_days import ExcludedDays

STATE = """triggers_state(periodic, crontab, "interval", clocked, solar, schedule)"""
ROWS = """
triggers_schedule schedule JOIN django_celery_beat_periodictask periodic ON periodic.id = schedule.task_id
LEFT JOIN django_celery_beat_crontabschedule crontab ON crontab.id = periodic.crontab_id
LEFT JOIN django_celery_beat_intervalschedule "interval" ON "interval".id = periodic.interval_id
LEFT JOIN django_celery_beat_clockedschedule clocked ON clocked.id = periodic.clocked_id
LEFT JOIN django_celery_beat_solarschedule solar ON solar.id = periodic.solar_id
"""


@dataclass(frozen=True)
class State:
    """The columns of a schedule's rows that decide when it fires; `values` as `triggers_state` gives them."""

    schedule_id: int
    values: Mapping[str, Any]

    @classmethod
    def of(cls, schedule: Schedule) -> "State":
        """As its rows are now."""
        [(values,)] = fetch(f"SELECT {STATE} FROM {ROWS} WHERE schedule.id = %s::bigint", [schedule.pk])  # noqa: S608
        return cls(schedule.pk, json.loads(values))

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
        """Of its crontab; UTC for what has none. RuleError if there is no such zone."""
        crontab = self.values.get("crontab")
        return zone_of(crontab["zone"] if crontab else "UTC")

    @property
    def spec(self) -> str:
        """The rule and where it starts, to tell whether an edit changed them; RuleError as `rule`."""
        return spec_of(self.rule(), self.start)

    def rule(self, anchor: datetime | None = None) -> Rule:
        """RuleError if it says nothing that can be carried out."""
        if crontab := self.values.get("crontab"):
            return _cron(
                crontab["minute"], crontab["hour"], crontab["day_of_month"], crontab["month"], crontab["day_of_week"],
                crontab["zone"],
            )  # fmt: skip
        if interval := self.values.get("interval"):
            return interval_of(interval["every"], interval["period"], anchor)
        if at := _instant(self.values.get("clocked")):
            return Clocked(at=at)
        if solar := self.values.get("solar"):
            return Solar(event=solar["event"], latitude=float(solar["latitude"]), longitude=float(solar["longitude"]))
        raise RuleError("it has no crontab, interval, clocked time or solar event")

    def plan(self, anchor: datetime | None = None) -> Plan:
        """When it fires while it is enabled; `anchor` is an interval's, in place of its own. RuleError as `rule`."""
        own = self.values.get("active_zone")
        return Plan(
            rule=self.rule(anchor or self.anchor),
            zone=zone_of(own) if own else self.zone,
            start=self.start,
            end=self.end,
            hours=_hours(self.values["active_hours"]) if self.values["active_hours"] else None,
            days=[(slug, _days(days)) for slug, days in sorted(self.values.get("exclude", {}).items())],
            jitter=_length(self.values["jitter"]),
            spread=_length(self.values["spread"]),
            seed=str(self.schedule_id),
            once=self.one_off,
        )

    def describe(self) -> str:
        """Its rule in words, or what is wrong with it."""
        try:
            return self.rule().words
        except RuleError as error:
            return str(error)


def spec_of(rule: Rule, start: datetime | None) -> str:
    """A rule and where it starts, as `Schedule.spec` has them."""
    return f"{rule}, from {start.isoformat()}" if start else str(rule)


def states_of(schedule: Schedule) -> list[tuple[State, datetime, datetime | None]]:
    """What held from when until when, oldest first; the last is what holds now, until None."""
    history: list[tuple[State, datetime, datetime | None]] = []
    since = schedule.created_at
    for revision in Revision.objects.filter(schedule=schedule.pk).order_by("until", "id"):
        history.append((State(schedule.pk, revision.state), since, revision.until))
        since = revision.until
    return [*history, (State.of(schedule), since, None)]


def _instant(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        instant = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise RuleError(f"{text!r} is beyond the calendar") from None
    refuse_beyond(instant)
    return instant


def _length(seconds: Any) -> timedelta:
    if not isinstance(seconds, (int, float)) or not seconds <= LONGEST.total_seconds():
        raise RuleError(f"a length of {seconds} s is more than 100 years")
    return timedelta(seconds=seconds)


# Thousands of schedules share a few rules.


@lru_cache(10_000)
def _cron(minute: str, hour: str, day_of_month: str, month: str, day_of_week: str, zone: str) -> Cron:
    return Cron(
        minute=minute, hour=hour, day_of_month=day_of_month, month=month, day_of_week=day_of_week, zone=zone_of(zone)
    )


@lru_cache(1000)
def _hours(text: str) -> ActiveHours:
    return ActiveHours.parse(text)


@lru_cache(1000)
def _days(text: str) -> ExcludedDays:
    return ExcludedDays.parse(text)
