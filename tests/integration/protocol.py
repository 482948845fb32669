"""What the protocol tests say again and again: stacks with the shop's agents, events, and what the database has."""

from datetime import timedelta
from typing import Any

import redis
from django.db import transaction
from django_celery_beat.models import PeriodicTask

from tests.support.stack import PATIENCE, SHOP, Process, Stack, StackMaker, eventually
from tests.support.triggers import make_trigger
from triggers.accept import Incoming, accept, builtin_source
from triggers.models import Schedule
from triggers.schedules.edit import create_schedule
from triggers.schedules.rules.interval import Interval
from triggers.schedules.terms.policy import SchedulePolicy


def shop_stack(make_stack: StackMaker, **env: str) -> Stack:
    """A stack with the shop's agents and a dispatcher; workers are the test's to start."""
    stack = make_stack(env={**SHOP, **env}, agents=True)
    stack.start("dispatcher")
    return stack


def emit(stack: Stack, type: str, ce_id: str, **data: Any) -> str:
    """Record an event; its id."""
    with stack.orm():
        source = builtin_source("cli")
        [accepted] = accept([Incoming(source_id=source, ce_source="test", ce_id=ce_id, type=type, data=data)])
    return str(accepted.event_id)


def runs(stack: Stack, where: str = "true", *parameters: Any) -> list[dict[str, Any]]:
    return stack.query(f"SELECT * FROM runs_run WHERE {where} ORDER BY seq", *parameters)


def run_of(stack: Stack, event_id: str) -> dict[str, Any]:
    """The one run of an event, as soon as there is one."""
    return eventually(lambda: runs(stack, "%s::uuid = ANY(event_ids)", event_id))[0]


def in_status(stack: Stack, event_id: str, status: str, timeout: float = PATIENCE) -> dict[str, Any]:
    """The run of an event, once it has this status."""
    query = "%s::uuid = ANY(event_ids) AND status = %s"
    return eventually(lambda: runs(stack, query, event_id, status), timeout)[0]


def outcomes(stack: Stack, run: dict[str, Any]) -> list[str]:
    rows = stack.query("SELECT outcome FROM runs_attempt WHERE run_id = %s ORDER BY epoch", run["id"])
    return [row["outcome"] for row in rows]


def effects(stack: Stack, event_id: str) -> int:
    return int(stack.query("SELECT count(*) FROM shop_effect WHERE event = %s", event_id)[0]["count"])


def owner(stack: Stack, run: dict[str, Any]) -> int:
    """The pid of the worker's parent that has this run."""
    return int(stack.query("SELECT pid FROM runs_worker WHERE id = %s", run["worker_id"])[0]["pid"])


def split(workers: list[Process], stack: Stack, run: dict[str, Any]) -> tuple[Process, Process]:
    """The worker that has the run, and the other one."""
    pid = owner(stack, run)
    [has_it] = [worker for worker in workers if worker.pid == pid]
    [other] = [worker for worker in workers if worker.pid != pid]
    return has_it, other


def flush_broker(stack: Stack) -> None:
    """Everything Redis knew of this stack is gone."""
    with redis.Redis.from_url(stack.redis_url) as client:
        client.flushdb()


def make_ticker(stack: Stack, *, every: str = "1s", length: timedelta | None = None, slug: str = "ticker") -> Schedule:
    """A schedule that catches everything up, for runs that may overlap; it ends after `length`."""
    # In one transaction, so that no Beat sees it before it has its end.
    with stack.orm(), transaction.atomic():
        trigger = make_trigger(slug, agent="ticker", types=[], overlap="allow")
        policy = SchedulePolicy(catch_up="all")
        schedule = create_schedule(name=slug, trigger=trigger, rule=Interval.parse(every), policy=policy, by="cli:test")
        if length:
            ends_at = schedule.edited_at + length
            PeriodicTask.objects.filter(pk=schedule.task_id).update(expires=ends_at)
        schedule.refresh_from_db()
    return schedule


def ticks_so_far(stack: Stack) -> int:
    return int(stack.query("SELECT count(*) FROM triggers_event WHERE type = 'schedule.fired'")[0]["count"])
