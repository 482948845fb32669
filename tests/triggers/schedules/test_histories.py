"""Random histories: schedules are edited, paused and resumed, calendars change, Beat is away for hours; and whatever came
of it, every nominal time of what held at that time is an event or a skip, for a reason that can be checked.

Further ones: `WAKEFUL_FULL=1 pytest -s tests/triggers/schedules/test_histories.py`.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from runs.models import OutboxMessage
from tests.support.brute_force import DAY, MINUTE, NONE, Crontab, Every, Expected
from tests.support.random_schedules import ZONES, Dice, Sample, write
from tests.support.triggers import make_trigger
from triggers.models import Event, ExclusionCalendar, Schedule, Skip
from triggers.schedules.firing import due_schedules

pytestmark = [pytest.mark.sampled, pytest.mark.long, pytest.mark.django_db]

SEEDS = range(100) if os.environ.get("WAKEFUL_FULL") else range(1)
SCHEDULES = 6  # of a history
EDITS = 40
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
# Past, so that the database has seen its edits: it stamps them by its clock, and they are dated back at once.
BEGINS = [
    datetime(2024, 3, 29, 18, tzinfo=UTC),
    datetime(2024, 10, 25, 18, tzinfo=UTC),
    datetime(2024, 4, 5, 18, tzinfo=UTC),
]
LENGTH = 3 * DAY
STAMPED = datetime(2026, 1, 1, tzinfo=UTC)  # what is later comes from the database's clock


@dataclass(frozen=True, kw_only=True)
class Version:
    """What held from an edit on."""

    since: datetime
    enabled: bool = True
    expected: Expected
    catch_up: str
    most: int | None = None
    window: timedelta | None = None
    offset: timedelta = NONE  # by which it is due later, at most


@dataclass(kw_only=True)
class History:
    """Of one schedule: its versions, oldest first."""

    schedule: Schedule
    versions: list[Version] = field(default_factory=list)

    @property
    def now(self) -> Version:
        return self.versions[-1]

    @property
    def task(self) -> Any:
        return PeriodicTask.objects.filter(pk=self.schedule.task_id)

    @property
    def row(self) -> "QuerySet[Schedule]":
        return Schedule.objects.filter(pk=self.schedule.pk)

    def edited(
        self, at: datetime, *, enabled: bool | None = None, expected: dict[str, Any] | None = None, **fields: Any
    ) -> None:
        before = self.now
        is_on = before.enabled if enabled is None else enabled
        definition = replace(before.expected, **(expected or {}))
        if isinstance(definition.rule, Every):
            was = before.expected.rule
            is_same = (
                isinstance(was, Every)
                and was.length == definition.rule.length
                and before.expected.start == definition.start
            )
            goes_on = is_same and (before.enabled or not is_on)
            anchor = was.anchor if goes_on and isinstance(was, Every) else definition.start or at
            definition = replace(definition, rule=replace(definition.rule, anchor=anchor))
        self.versions.append(replace(before, since=at, enabled=is_on, expected=definition, **fields))

    def nominals(self, until: datetime) -> list[tuple[datetime, Version]]:
        """Every time that was named by what held then."""
        ends = [later.since for later in self.versions[1:]] + [until]
        return [
            (nominal, version)
            for version, end in zip(self.versions, ends, strict=True)
            for nominal in version.expected.nominals(version.since, end)
        ]


class Life:
    """Some schedules, what happens to them, and a Beat."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.begin = self.random.choice(BEGINS)
        self.now = self.begin
        self.dice = Dice(seed, self.begin, self.begin + LENGTH)
        self.outages: list[tuple[datetime, datetime]] = []
        samples = [sample for n in range(60) if (sample := self.dice.sample(f"s{n}")) and not is_final(sample)][
            :SCHEDULES
        ]
        rows = write(samples, self.dice.calendars, make_trigger("anything", types=[]), at=self.begin)
        self.days = {calendar.slug: calendar.days for calendar in self.dice.calendars}
        self.histories = [
            History(
                schedule=rows[sample.name],
                versions=[
                    Version(
                        since=self.begin,
                        expected=sample.expected,
                        catch_up=sample.catch_up,
                        offset=sample.latest_offset,
                    )
                ],
            )
            for sample in samples
        ]
        self.calendars = {sample.name: sample.calendar for sample in samples}
        Schedule.objects.update(created_at=self.begin)
        self.beat_until(self.begin)

    def play(self) -> None:
        for at in sorted(self.begin + self.random.random() * LENGTH for _ in range(EDITS)):
            if self.random.random() < 0.15:
                self.be_away(at)
            else:
                self.beat_until(at)
            self.edit(self.random.choice(self.histories), at)
            if self.random.random() < 0.3:
                self.edit(self.random.choice(self.histories), at + 300 * timedelta(milliseconds=1))  # before Beat looks
        self.beat_until(self.begin + LENGTH)

    # Beat

    def beat_until(self, end: datetime) -> None:
        """Tick at every due time, a little late, as a Beat does."""
        self.settle(min(end, self.now + self.random.random() * SECOND))
        while (next_due := due_schedules.find_due().next_due) and next_due <= end:
            self.now = min(end, max(self.now, next_due) + self.random.random() * SECOND)
            self.fire()
        self.now = end

    def be_away(self, until: datetime) -> None:
        """No Beat from now on."""
        self.outages.append((self.now, until))
        self.now = until
        self.settle(until)
        self.fire()

    def settle(self, at: datetime) -> None:
        while due_schedules.find_due().has_stale:
            due_schedules.settle(at)
            self.date(at)

    def fire(self) -> None:
        while due_schedules.fire_due(self.now):
            pass
        self.date(self.now)

    def date(self, at: datetime) -> None:
        """What the database stamped by its clock happened at an instant of this history."""
        with connection.cursor() as cursor:
            for table, column in (("revision", "until"), ("schedule", "edited_at"), ("schedule", "accounted_until")):
                cursor.execute(f"UPDATE triggers_{table} SET {column} = %s WHERE {column} > %s", [at, STAMPED])

    # Edits

    def edit(self, history: History, at: datetime) -> None:
        edits: list[Callable[[History, datetime], None]] = [
            self.another_rule,
            self.another_rule,
            self.rule_row,
            self.zone,
            self.switch,
            self.switch,
            self.catch_up,
            self.offset,
            self.hours,
            self.calendar,
            self.calendar_days,
            self.end,
            self.save,
        ]
        self.random.choice(edits)(history, at)
        self.date(at)

    def another_rule(self, history: History, at: datetime) -> None:
        rule = self.rule()
        crontab = interval = None
        if isinstance(rule, Crontab):
            crontab = CrontabSchedule.objects.create(**columns_of(rule))
        else:
            interval = IntervalSchedule.objects.create(every=rule.length.total_seconds(), period="seconds")
        history.task.update(crontab=crontab, interval=interval)
        own = {} if history.schedule.active_zone else {"zone": getattr(rule, "zone", "UTC")}
        history.edited(at, expected={"rule": rule, **own})

    def rule_row(self, history: History, at: datetime) -> None:
        """The row of its rule is edited in place."""
        rule = self.rule()
        task = history.task.get()
        if isinstance(rule, Crontab) and task.crontab_id:
            CrontabSchedule.objects.filter(pk=task.crontab_id).update(**columns_of(rule))
        elif isinstance(rule, Every) and task.interval_id:
            # Alone with it, or this would be an edit of others too.
            row = IntervalSchedule.objects.create(every=task.interval.every, period="seconds")
            history.task.update(interval=row)
            row.every = int(rule.length.total_seconds())
            row.save()
        else:
            return
        history.edited(at, expected={"rule": rule})

    def zone(self, history: History, at: datetime) -> None:
        rule = history.now.expected.rule
        if isinstance(rule, Crontab):
            rule = replace(rule, zone=self.random.choice(ZONES))
            CrontabSchedule.objects.filter(pk=history.task.get().crontab_id).update(timezone=rule.zone)
            history.edited(at, expected={"rule": rule})

    def switch(self, history: History, at: datetime) -> None:
        history.task.update(enabled=not history.now.enabled)
        history.edited(at, enabled=not history.now.enabled)

    def catch_up(self, history: History, at: datetime) -> None:
        terms: dict[str, Any] = {
            "catch_up": self.random.choice(["latest", "skip", "all", "all"]),
            "most": self.random.choice([None, None, 1, 3]),
            "window": self.random.choice([None, None, HOUR, 20 * MINUTE]),
        }
        history.row.update(catch_up=terms["catch_up"], catch_up_max=terms["most"], catch_up_window=terms["window"])
        history.edited(at, **terms)

    def offset(self, history: History, at: datetime) -> None:
        jitter, spread = (self.random.choice([NONE, SECOND, 10 * MINUTE, HOUR]) for _ in range(2))
        history.row.update(jitter=jitter, spread=spread)
        history.edited(at, offset=jitter + spread)

    def hours(self, history: History, at: datetime) -> None:
        hours, text = self.dice.hours() if self.random.random() < 0.7 else ([], "")
        history.row.update(active_hours=text)
        history.edited(at, expected={"hours": hours})

    def calendar(self, history: History, at: datetime) -> None:
        name = history.schedule.task.name
        slug = self.random.choice(["", *sorted(self.days)])
        rows = [ExclusionCalendar.objects.get(slug=slug)] if slug else []
        Schedule.objects.get(pk=history.schedule.pk).exclude.set(rows)
        self.calendars[name] = slug
        history.edited(at, expected={"excluded": self.days.get(slug, {})})

    def calendar_days(self, history: History, at: datetime) -> None:
        """A calendar is edited: all that name it are."""
        slug = self.calendars[history.schedule.task.name]
        if not slug:
            return
        day = (self.begin + self.random.random() * LENGTH).date()
        self.days[slug] = {day: "x"}
        ExclusionCalendar.objects.filter(slug=slug).update(days=f"{day} x")
        for one in self.histories:
            if self.calendars[one.schedule.task.name] == slug:
                one.edited(at, expected={"excluded": self.days[slug]})

    def end(self, history: History, at: datetime) -> None:
        end = self.random.choice([None, at + self.random.random() * DAY])
        history.task.update(expires=end)
        history.edited(at, expected={"end": end})

    def save(self, history: History, at: datetime) -> None:
        """What changes nothing is no edit."""
        task = history.task.get()
        task.description = str(at)
        task.save()

    def rule(self) -> Crontab | Every:
        if self.random.random() < 0.6:
            return Every(length=self.random.choice([7, 45, 90, 300]) * MINUTE)
        return self.dice.crontab()

    # What came of it

    def check(self, history: History) -> int:
        until = self.begin + LENGTH
        named = history.nominals(until)
        row = Schedule.objects.get(pk=history.schedule.pk)
        fired = fires_of(row)
        skips = list(Skip.objects.filter(schedule=row.pk).order_by("first"))
        story = "\n".join(map(str, [*history.versions, f"outages {self.outages}", f"fired {fired}", *skips, vars(row)]))

        owner = dict(named)
        assert len(fired) == len(set(fired)), story
        for nominal in fired:
            assert nominal in owner, f"{nominal} was never named\n{story}"
            assert owner[nominal].enabled and not owner[nominal].expected.closed(nominal), f"{nominal}\n{story}"
        reasons: dict[datetime, str] = {}
        for skip in skips:
            within = [nominal for nominal, _ in named if skip.first <= nominal <= skip.last]
            assert {skip.first, skip.last} <= set(within), f"{skip}\n{story}"
            assert skip.count == len(within), f"{skip}: {len(within)}\n{story}"
            assert not set(within) & {*reasons, *fired}, f"{skip}\n{story}"
            reasons.update(dict.fromkeys(within, skip.reason))
        for nominal, reason in reasons.items():
            assert self.is_true(reason, nominal, owner[nominal]), f"{nominal} {reason}\n{story}"
        for nominal, version in named:
            if nominal not in reasons and nominal not in fired:
                assert row.accounted_until is None or nominal > row.accounted_until, f"{nominal} is lost\n{story}"
                is_to_come = nominal + version.offset > until or not history.now.enabled
                assert is_to_come or version.expected.closed(nominal), f"{nominal} is owed\n{story}"
        self.check_caught_up(history, fired, story)
        return len(named)

    def is_true(self, reason: str, nominal: datetime, version: Version) -> bool:
        if reason == "paused":
            return not version.enabled
        if not version.enabled:
            return False
        if closed := version.expected.closed(nominal):
            return reason in closed
        was_away = any(nominal + version.offset > begin and nominal <= end for begin, end in self.outages)
        if reason == "window":
            return was_away and version.window is not None
        if reason == "most":
            return was_away and version.most is not None
        return was_away and reason == "missed" and version.catch_up != "all"

    def check_caught_up(self, history: History, fired: list[datetime], story: str) -> None:
        """Of what an outage took, the newest has fired, unless it was not to be."""
        ends = [later.since for later in history.versions[1:]] + [self.begin + LENGTH]
        for version, held_until in zip(history.versions, ends, strict=True):
            if version.enabled and version.catch_up != "skip" and version.window is None and not version.offset:
                for begin, end in self.outages:
                    missed = version.expected.nominals(max(begin, version.since), min(end, held_until))
                    open_ones = [nominal for nominal in missed if not version.expected.closed(nominal)]
                    assert not open_ones or open_ones[-1] in fired, f"{open_ones[-1]} was not caught up\n{story}"


def is_final(sample: Sample) -> bool:
    """Does it retire by itself?"""
    return sample.expected.max_fires is not None or sample.is_one_off


def columns_of(rule: Crontab) -> dict[str, str]:
    names = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
    return {**dict(zip(names, rule.fields, strict=True)), "timezone": rule.zone}


def fires_of(row: Schedule) -> list[datetime]:
    events = Event.objects.filter(ce_source=row.task.name).values_list("time", flat=True)
    messages = OutboxMessage.objects.filter(key__startswith=f"{row.task_id}:").values_list("key", flat=True)
    return sorted(
        [*(time for time in events if time), *(datetime.fromisoformat(key.partition(":")[2]) for key in messages)]
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_every_nominal_time_of_a_random_history_is_accounted_for(seed: int) -> None:
    life = Life(seed)

    life.play()

    named = sum(life.check(history) for history in life.histories)
    print(
        f"seed {seed}: {named} nominal times, {sum(len(one.versions) for one in life.histories)} versions, "
        f"{Event.objects.count()} events, {Skip.objects.count()} skips, {len(life.outages)} outages"
    )
