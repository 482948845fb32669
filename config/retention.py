"""Retention as a whole: every room's steps in turn, batch by batch, within a budget of time."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import structlog
from django.conf import settings
from django.db import OperationalError

from config.web.logins import WINDOW
from runs.retention import prune as runs
from runs.retention.sweep import Step, few, set_out_afresh
from triggers.retention import prune as triggers

log = structlog.get_logger(__name__)

PAST = "{at} < clock_timestamp() - %(keep)s::interval"


@dataclass(kw_only=True)
class Pruned:
    """What became of one step: rows taken away, and whether it got through."""

    name: str
    rows: int = 0
    complete: bool = False


def steps() -> list[Step]:
    done, expired = PAST.format(at="date_done"), PAST.format(at="expire_date")
    results = settings.WAKEFUL_KEEP_RESULTS
    return [
        *runs.steps(),
        *triggers.steps(),
        few("results", "django_celery_results_taskresult", key="id", which=done, keep=results),
        few("results.groups", "django_celery_results_groupresult", key="id", which=done, keep=results),
        few("sessions", "django_session", key="session_key", which=expired, keep=timedelta()),
        few("logins", "config_loginfailure", key="id", which=PAST.format(at="since"), keep=WINDOW),
    ]


def prune(*, budget: timedelta | None = None, stop: Callable[[], bool] = lambda: False) -> list[Pruned]:
    """Take away what is older than the settings say, until nothing is left to take, the budget is used up or `stop` says
    so; the next call goes on where this one ended."""
    set_out_afresh()
    ends = None if budget is None else time.monotonic() + budget.total_seconds()
    todo = steps()
    done = {step.name: Pruned(name=step.name) for step in todo}
    while todo and not stop() and (ends is None or time.monotonic() < ends):
        # One batch of each: with much to do, none of them waits for all the others.
        todo = [step for step in todo if _batch(step, done[step.name])]
    log.info("retention.pruned", **{name: one.rows for name, one in done.items() if one.rows}, complete=not todo)
    return list(done.values())


def count() -> list[Pruned]:
    """What would be taken away if there were time for all of it; nothing is changed."""
    return [Pruned(name=step.name, rows=step.count(), complete=True) for step in steps()]


def _batch(step: Step, pruned: Pruned) -> bool:
    """Whether the step has more to do now."""
    try:
        removed = step.batch()
    except OperationalError as error:
        # Somebody holds what it needs for longer than it may wait: the next round comes soon enough.
        log.warning("retention.step_put_off", step=step.name, reason=str(error).strip())
        return False
    pruned.rows += removed.rows
    pruned.complete = not removed.more
    return removed.more
