"""Wakeful beside a team's own project, which has a worker and a Beat of its own, on one database and one Redis: neither harms the
other."""

import time
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from tests.integration.protocol import emit, in_status
from tests.support.beside import Shop
from tests.support.stack import SHOP, StackMaker, eventually
from tests.support.triggers import make_trigger
from triggers.schedules.rows import add_schedule
from triggers.schedules.rules.interval import Interval


@pytest.mark.chaos
def test_a_project_on_the_same_redis_database_loses_none_of_its_tasks(make_stack: StackMaker, tmp_path: Path) -> None:
    stack = make_stack(env=SHOP, agents=True)
    shop = Shop(tmp_path / "shop", stack)
    stack.start("worker")
    stack.start("dispatcher")

    shop.send(40)
    with shop.running("worker", "-c", "2", "-l", "INFO") as theirs:
        eventually(lambda: sum(shop.done().values()) >= 40)
        in_status(stack, emit(stack, "effect.one", "1"), "succeeded")
        # What controls the team's workers does not control ours, and the other way round.
        shop.python("-c", "from shop.celery import app; app.control.shutdown()")
        assert theirs.wait(30) == 0

    assert shop.done() == {str(number): 1 for number in range(40)}
    assert "unregistered" not in shop.log("worker")
    assert all(process.is_alive() for process in stack.processes)
    in_status(stack, emit(stack, "effect.one", "2"), "succeeded")
    assert not stack.query("SELECT 1 FROM runs_outboxmessage WHERE topic = 'unknown-task'")


@pytest.mark.chaos
def test_a_worker_that_gets_the_tasks_of_another_program_keeps_them_until_they_are_put_back(
    make_stack: StackMaker, tmp_path: Path
) -> None:
    stack = make_stack(env=SHOP, agents=True)
    shop = Shop(tmp_path / "shop", stack)
    # As units of before have it; and it serves the queue that has another name now.
    worker = stack.start("worker", queues=["celery", "runs.default"])
    stack.start("dispatcher")

    shop.send(40)
    counted = "SELECT count(*) FROM runs_outboxmessage WHERE topic = 'unknown-task'"
    eventually(lambda: stack.query(counted)[0]["count"] == 40)
    in_status(stack, emit(stack, "effect.one", "1"), "succeeded")
    told = stack.manage("doctor", check=False).stdout
    assert "40 messages are kept of Celery tasks" in told
    assert "billing.tasks.charge (40 from the queue celery)" in told
    with redis.Redis.from_url(stack.redis_url) as client:
        assert eventually(lambda: client.exists("_kombu.binding.wakeful"))

    assert worker.stop() == 0
    with shop.running("worker", "-c", "2"):
        stack.manage("unknown_tasks", "put-back")
        eventually(lambda: sum(shop.done().values()) >= 40)
    assert shop.done() == {str(number): 1 for number in range(40)}
    assert stack.query(counted)[0]["count"] == 0


TICKS = """
from django.core.management import execute_from_command_line
import django; django.setup()
from django_celery_beat.models import IntervalSchedule, PeriodicTask
every, _ = IntervalSchedule.objects.get_or_create(every=2, period="seconds")
PeriodicTask.objects.create(name="theirs", task="billing.tasks.charge", args='["tick"]', interval=every)
"""
LAST = 16  # seconds


@pytest.mark.chaos
def test_each_beat_fires_its_own_tasks_and_none_of_the_other(make_stack: StackMaker, tmp_path: Path) -> None:
    stack = make_stack(env={**SHOP, "WAKEFUL_ADOPT_PERIODIC_TASKS": "false"}, agents=True)
    shop = Shop(tmp_path / "shop", stack)
    shop.env["DJANGO_SETTINGS_MODULE"] = "shop.settings"
    with stack.orm():
        trigger = make_trigger(agent="effect", types=["never.comes"], slug="ours")
        add_schedule(trigger, name="ours", rule=Interval(every=timedelta(seconds=2)))
    stack.start("worker")
    stack.start("dispatcher")
    stack.start("beat")
    shop.python("-c", TICKS)

    with shop.running("worker", "-c", "2", "-l", "INFO"), shop.running("beat", "-l", "INFO"):
        eventually(lambda: shop.done()["tick"] >= 1)
        before, since = shop.done()["tick"], time.monotonic()
        counted = "SELECT count(*) FROM triggers_event WHERE type = 'schedule.fired'"
        ours = stack.query(counted)[0]["count"]
        time.sleep(LAST)
        # One more or less at either end; two Beats would make twice as many.
        expected = (time.monotonic() - since) / 2
        assert abs(shop.done()["tick"] - before - expected) <= 2
        assert abs(stack.query(counted)[0]["count"] - ours - expected) <= 2

    # Theirs fires none of ours, nor sends a task that its worker does not know.
    sent = shop.log("beat")
    assert "billing.tasks.charge" in sent
    assert "wakeful." not in sent
    assert "ours" not in sent
    assert "unregistered" not in shop.log("worker")
    assert stack.query("SELECT 1 FROM triggers_schedule WHERE rest = 'foreign'")
    assert not stack.query("SELECT 1 FROM triggers_skip WHERE reason = 'elsewhere'")
    assert "theirs" not in stack.manage("doctor", check=False).stdout


@pytest.mark.chaos
def test_adopted_tasks_that_another_beat_fires_are_a_problem_and_so_are_those_that_no_beat_fires_any_more(
    make_stack: StackMaker, tmp_path: Path
) -> None:
    stack = make_stack(env=SHOP, agents=True)
    shop = Shop(tmp_path / "shop", stack)
    shop.env["DJANGO_SETTINGS_MODULE"] = "shop.settings"
    stack.start("worker")
    beat = stack.start("beat")
    shop.python("-c", TICKS)
    eventually(lambda: stack.query("SELECT 1 FROM triggers_schedule WHERE trigger_id IS NULL AND fires > 1"))

    with shop.running("beat"):
        eventually(lambda: "Another Beat fires periodic tasks" in stack.manage("doctor", check=False).stdout)

    # An installation whose Beat fired them, and does not since it was upgraded.
    assert beat.stop() == 0
    stack.query("UPDATE django_celery_beat_periodictask SET last_run_at = NULL")
    stack.start("beat", env={"WAKEFUL_ADOPT_PERIODIC_TASKS": "false"})
    eventually(lambda: stack.query("SELECT 1 FROM triggers_schedule WHERE rest = 'foreign'"))
    said = stack.manage("doctor", check=False).stdout
    assert "1 periodic task is no longer fired: theirs" in said
    assert "WAKEFUL_ADOPT_PERIODIC_TASKS" in said
