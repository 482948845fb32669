"""An installation of django-celery-beat comes to our Beat by one setting and goes back by one, with its own tasks:
real Beats, of theirs and of ours in turn, on one database."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
import redis
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask

from runs.db.sql import database_now
from tests.support.stack import Process, Stack, StackMaker, eventually

THEIRS = {"CELERY_BEAT_SCHEDULER": "tests.integration.theirs:DatabaseScheduler"}
SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
ONCE = {
    "due soon",
    "missed today",
    "due between the two",
    "clocked",
    "clocked between the two",
    "clocked on the way back",
}
NEVER = {"fired today", "retired", "fired and not retired yet", "switched off", "expired", "not begun"}


@pytest.mark.chaos
def test_tasks_of_django_celery_beat_fire_as_before_whichever_scheduler_runs(make_stack: StackMaker) -> None:
    stack = make_stack()
    stack.query("DROP SCHEMA public CASCADE")
    stack.query("CREATE SCHEMA public")
    stack.manage("migrate", "django_celery_beat", "-v0")
    sent = Sent(stack)
    with stack.orm():
        an_installation(database_now())

    with beat(stack, **THEIRS):
        eventually(lambda: sent.has("ticker", 2, "due soon", "missed today", "clocked"))
    with stack.orm():
        while_nobody_looks(database_now())
    stack.manage("migrate", "-v0")
    assert not sent.look()["due between the two"]

    dispatcher = stack.start("dispatcher")
    began = time.monotonic()
    sent.mark()
    with beat(stack):
        eventually(lambda: sent.has("ticker", 3, "due between the two", "clocked between the two"))
    eventually(lambda: not stack.query("SELECT 1 FROM runs_outboxmessage"))
    assert sent.since_mark["ticker"] <= time.monotonic() - began + 3  # what is owed or was under way, and no burst
    with stack.orm():
        make_clocked("clocked on the way back", database_now() - SECOND)

    sent.mark()
    with beat(stack, **THEIRS):
        eventually(lambda: sent.has("ticker", 3, "clocked on the way back"))

    began = time.monotonic()
    sent.mark()
    with beat(stack):
        eventually(lambda: sent.has("ticker", 3))
        eventually(lambda: not stack.query("SELECT 1 FROM triggers_schedule WHERE stale"))
    dispatcher.stop()
    assert sent.since_mark["ticker"] <= time.monotonic() - began + 1  # no burst for what theirs had fired

    ours = {name: count for name, count in sent.look().items() if name in ONCE | NEVER}
    assert ours == dict.fromkeys(ONCE, 1)
    elsewhere = "SELECT 1 FROM triggers_skip WHERE reason = 'elsewhere' AND last - first > interval '1 s'"
    assert stack.query(elsewhere)


# The installation


def an_installation(now: datetime) -> None:
    """Tasks as django-celery-beat has them after a while."""
    make_interval("ticker", SECOND)
    make_interval("due soon", HOUR, last_run_at=now - HOUR + 5 * SECOND)
    make_interval("due between the two", HOUR, last_run_at=now - HOUR / 2)
    make_interval("switched off", SECOND, enabled=False)
    make_interval("expired", SECOND, expires=now - HOUR)
    make_interval("not begun", SECOND, start_time=now + DAY)
    minutes_ago = (now - timedelta(minutes=10)).replace(second=0, microsecond=0)
    make_crontab("fired today", minutes_ago, last_run_at=minutes_ago + SECOND)
    make_crontab("missed today", minutes_ago, last_run_at=minutes_ago - DAY + SECOND)
    make_clocked("clocked", now + 4 * SECOND)
    make_clocked("retired", now - HOUR, enabled=False)


def while_nobody_looks(now: datetime) -> None:
    """What falls between the two schedulers."""
    PeriodicTask.objects.filter(name="due between the two").update(last_run_at=now - HOUR)
    make_clocked("clocked between the two", now)
    # Theirs retires a one-shot only when it looks at it again.
    make_clocked("fired and not retired yet", now - SECOND, last_run_at=now, total_run_count=1)


def make_interval(name: str, every: timedelta, **fields: Any) -> None:
    interval, _ = IntervalSchedule.objects.get_or_create(every=int(every.total_seconds()), period="seconds")
    make_task(name, interval=interval, **fields)


def make_crontab(name: str, daily_at: datetime, **fields: Any) -> None:
    crontab = CrontabSchedule.objects.create(minute=str(daily_at.minute), hour=str(daily_at.hour), timezone="UTC")
    make_task(name, crontab=crontab, **fields)


def make_clocked(name: str, at: datetime, **fields: Any) -> None:
    make_task(name, clocked=ClockedSchedule.objects.create(clocked_time=at), one_off=True, **fields)


def make_task(name: str, **fields: Any) -> None:
    PeriodicTask.objects.create(name=name, task="shop.ordinary", **fields)


# What is sent


@contextmanager
def beat(stack: Stack, **env: str) -> Iterator[Process]:
    process = stack.start("beat", env=env, wait=False)
    yield process
    assert process.is_alive(), process.output()[-2000:]
    assert process.stop() == 0


class Sent:
    """The periodic tasks that have come to the broker, by the name of their row; no worker takes them from there."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.marked: Counter[str] = Counter()

    def look(self) -> Counter[str]:
        with redis.Redis.from_url(self.stack.redis_url) as client:
            messages: Any = client.lrange("wakeful", 0, -1)
        return Counter(json.loads(message)["headers"]["periodic_task_name"] for message in messages)

    def mark(self) -> None:
        self.marked = self.look()

    @property
    def since_mark(self) -> Counter[str]:
        return self.look() - self.marked

    def has(self, name: str, times: int, *once: str) -> bool:
        """Has one come so often since the mark, and have the others come at all?"""
        seen = self.since_mark
        return seen[name] >= times and all(seen[other] for other in once)
