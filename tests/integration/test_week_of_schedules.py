"""Random schedules over forty zones through the week in which clocks change, against brute force, with three tickers
that are killed all the while: every fire at its nominal time and once, every other nominal time with its reason.

The real number of schedules: `WAKEFUL_FULL=1 pytest -s tests/integration/test_week_of_schedules.py`.
"""

import json
import os
import sys
import time
from calendar import monthrange
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tests.integration.tickers import AT_ONCE
from tests.support.brute_force import DAY, clock_changes
from tests.support.points import Points
from tests.support.random_schedules import ZONES, Dice, Sample, write
from tests.support.stack import Process, Stack, StackMaker
from tests.support.triggers import make_trigger

pytestmark = [pytest.mark.chaos, pytest.mark.long]

FULL = bool(os.environ.get("WAKEFUL_FULL"))
COUNT = 2000 if FULL else 60
# Seconds by which the clock goes on at least: within what Beat may be late without having missed anything, where of a
# schedule no two fires are due in one step; in the long run those with jitter catch up whatever is.
STEP = 20.0 if FULL else 2.0
STRIKES = 0.5 if FULL else 1.5  # a second
AT_MOST = 3600 if FULL else 280  # seconds


def sunday(year: int, month: int) -> datetime:
    """The last one of a month. Europe's clocks change on it in March and October, those of others around it."""
    last = datetime(year, month, monthrange(year, month)[1], tzinfo=UTC)
    return last - (last.weekday() + 1) % 7 * DAY


# From the day before Europe's change to the Sunday after, on which America's or Australia's and Chile's has come too.
# In years ahead of the database's clock, which stamps edits: what is tested does not depend on the day it is tested.
WEEKS = {"spring": sunday(2044, 3) - DAY / 2, "autumn": sunday(2044, 10) - DAY / 2}
LENGTH = 8 * DAY


class Truth:
    """What brute force expects of a sample until an instant."""

    def __init__(self, sample: Sample, begin: datetime, end: datetime) -> None:
        self.sample = sample
        self.nominals = sample.expected.nominals(begin, end)
        self.closed = {nominal: closed for nominal in self.nominals if (closed := sample.expected.closed(nominal))}
        self.fires = [nominal for nominal in self.nominals if nominal not in self.closed][: sample.expected.max_fires]


@dataclass
class Done:
    """What the rows say of a schedule."""

    fired: list[datetime] = field(default_factory=list)
    dues: list[datetime] = field(default_factory=list)  # of those with an event
    skips: list[tuple[str, datetime, datetime, int | None]] = field(default_factory=list)
    accounted_until: datetime | None = None
    next_fire_at: datetime | None = None
    rest: str = ""


@pytest.mark.timeout(AT_MOST + 200)
@pytest.mark.parametrize("season", WEEKS if FULL else ["spring"])
def test_every_fire_of_the_week_is_that_of_brute_force_and_happens_once(make_stack: StackMaker, season: str) -> None:
    begin = WEEKS[season]
    end = begin + LENGTH
    changes = [change for zone in ZONES for change in clock_changes(zone, begin, end)]
    assert any(change > timedelta(0) for change in changes) == (season == "spring")
    assert any(change < timedelta(0) for change in changes)
    dice = Dice(begin.year, begin, end)
    samples = dice.samples(COUNT)
    if FULL:
        samples = [replace(sample, catch_up="all") if sample.latest_offset else sample for sample in samples]
    truths = [Truth(sample, begin, end) for sample in samples]
    stack = make_stack()
    with stack.orm():
        write(samples, dice.calendars, make_trigger("anything", types=[]), at=begin)
    stack.query("CREATE TABLE simulated (now timestamptz)")
    stack.query("INSERT INTO simulated VALUES (%s)", begin)

    tickers, points = start_tickers(stack, end)
    between = watch(tickers, stack, truths)

    assert tickers.returncode == 0, tickers.output()[-3000:]
    now, done = read(stack)
    assert now == end
    fires = sum(verify(truth, done[truth.sample.name], end, is_over=True) for truth in truths)
    skips = sum(len(one.skips) for one in done.values())
    assert not stack.query("SELECT 1 FROM triggers_redelivery")
    counts = json.loads(tickers.output().splitlines()[-1])
    assert counts["killed"] >= 3
    print(
        f"\n{season}: {len(truths)} schedules, {len(changes)} clock changes, {fires} fires equal to brute force,"
        f" {skips} skips; {AT_ONCE} tickers, {counts['killed']} killed; {between} looks at the rows between; {counts['seconds']} s"
    )


def start_tickers(stack: Stack, end: datetime) -> tuple[Process, Points]:
    points = Points(stack.folder / "points")
    command = [sys.executable, "-m", "tests.integration.tickers", end.isoformat(), str(STEP), str(STRIKES), "1"]
    return Process(stack, "tickers", "tickers", command, {**stack.env, **points.env}), points


def watch(tickers: Process, stack: Stack, truths: Sequence[Truth]) -> int:
    """Until they are through, look again and again at what there is by then; how often that was."""
    deadline = time.monotonic() + AT_MOST
    looks = 0
    try:
        while tickers.is_alive() and time.monotonic() < deadline:
            time.sleep(20 if FULL else 4)
            now, done = read(stack)
            for truth in truths:
                verify(truth, done[truth.sample.name], now, is_over=False)
            looks += 1
        assert not tickers.is_alive(), f"they are at {read(stack)[0]} after {AT_MOST} s"
    finally:
        tickers.kill()
    return looks


def read(stack: Stack) -> tuple[datetime, dict[str, Done]]:
    """The clock, and what is done so far, as of one moment."""
    done: dict[str, Done] = defaultdict(Done)
    with psycopg.connect(stack.database_url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        [(now,)] = connection.execute("SELECT now FROM simulated")
        for name, nominal, due in connection.execute(
            "SELECT ce_source, time, data->>'due' FROM triggers_event ORDER BY time, seq"
        ):
            done[name].fired.append(nominal)
            done[name].dues.append(datetime.fromisoformat(due))
        tasks: dict[int, str] = dict(
            connection.execute("SELECT id, name FROM django_celery_beat_periodictask").fetchall()
        )
        for (key,) in connection.execute("SELECT key FROM runs_outboxmessage WHERE topic = 'task'"):
            task_id, _, nominal = key.partition(":")
            done[tasks[int(task_id)]].fired.append(datetime.fromisoformat(nominal))
        for name, reason, first, last, count in connection.execute(
            "SELECT name, reason, first, last, count FROM triggers_skip skip"
            " JOIN triggers_schedule schedule ON schedule.id = schedule_id"
            " JOIN django_celery_beat_periodictask task ON task.id = task_id ORDER BY first"
        ):
            done[name].skips.append((reason, first, last, count))
        for name, *columns in connection.execute(
            "SELECT name, next_fire_at, accounted_until, rest FROM triggers_schedule schedule"
            " JOIN django_celery_beat_periodictask task ON task.id = task_id"
        ):
            done[name].next_fire_at, done[name].accounted_until, done[name].rest = columns
    for one in done.values():
        one.fired.sort()
    return now, done


def verify(truth: Truth, done: Done, now: datetime, *, is_over: bool) -> int:
    """Every event at a time brute force names, once and with none left out; every other time with its reason. How many
    fires there are."""
    sample, expected = truth.sample, truth.sample.expected
    result = (sample, done)

    assert done.fired == truth.fires[: len(done.fired)], result
    assert done.dues == sorted(done.dues), result
    for nominal, due in zip(done.fired, done.dues, strict=False):
        assert nominal <= due <= min(now, nominal + sample.latest_offset), result

    skipped: list[datetime] = []
    for reason, first, last, count in done.skips:
        within = [nominal for nominal in truth.nominals if first <= nominal <= last]
        assert {first, last} <= set(within), result
        assert all(reason in truth.closed.get(nominal, ()) for nominal in within), result
        assert count == len(within) or (count is None and len(within) > 1000), result
        skipped += within
    accounted = {*done.fired, *skipped}
    assert len(accounted) == len(done.fired) + len(skipped), result

    has_retired = expected.max_fires is not None and len(done.fired) == expected.max_fires
    owed_until = done.fired[-1] if has_retired else now
    for nominal in truth.nominals:
        if nominal <= owed_until and nominal not in accounted:
            assert done.accounted_until is None or nominal > done.accounted_until, result
            # It waits for its due time, or for the pointer to pass what is closed.
            assert not is_over or nominal in truth.closed or nominal + sample.latest_offset > now, result
    return len(done.fired)
