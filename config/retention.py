"""Retention: the steps of all rooms, batch by batch, within a time budget."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import structlog
from django.conf import settings
from django.db import OperationalError

from config.web.logins import WINDOW
from runs.db.errors import is_gone
from runs.retention import prune as runs
from runs.retention.sweep import Step, few, set_out_afresh
from triggers.retention import prune as triggers

log = structlog.get_logger(__name__)

PAST = "{at} < clock_timestamp() - %(keep)s::interval"


@dataclass(kw_only=True)
class Pruned:
    """The result of a step: deleted rows, and whether it is complete."""

    name: str
    rows: int = 0
    complete: bool = False


def steps() -> list[Step]:
    done, expired = PAST.format(at="date_done"), PAST.format(at="expire_date")
    results = settings.WAKEFUL_KEEP_RESULTS
    # Other programs on this database keep their results as long as they want.
    ours = "" if settings.WAKEFUL_ADOPT_PERIODIC_TASKS else " AND task_name LIKE 'wakeful.%%'"
    of_groups = "" if settings.WAKEFUL_ADOPT_PERIODIC_TASKS else " AND false"
    return [
        *runs.steps(),
        *triggers.steps(),
        few("results", "django_celery_results_taskresult", key="id", which=done + ours, keep=results),
        few("results.groups", "django_celery_results_groupresult", key="id", which=done + of_groups, keep=results),
        few("sessions", "django_session", key="session_key", which=expired, keep=timedelta()),
        few("logins", "config_loginfailure", key="id", which=PAST.format(at="since"), keep=WINDOW),
        # Such as those of an agent that is gone. Prometheus takes what comes back for a counter that began again.
        few("totals", "config_total", key="id", which=PAST.format(at="changed_at"), keep=settings.WAKEFUL_KEEP_RUNS),
    ]


def prune(*, budget: timedelta | None = None, stop: Callable[[], bool] = lambda: False) -> list[Pruned]:
    """Delete rows that are older than the settings allow, until none are left, the budget is used up, or `stop` returns
    true; the next call continues where this one ended. A step that fails does not stop the others: its error is raised after them."""
    set_out_afresh()
    ends = None if budget is None else time.monotonic() + budget.total_seconds()
    todo = steps()
    done = {step.name: Pruned(name=step.name) for step in todo}
    failed: list[Exception] = []
    while todo and not stop() and (ends is None or time.monotonic() < ends):
        # One batch of each step per round, so that no step waits for all others.
        todo = [step for step in todo if _batch(step, done[step.name], failed)]
    complete = not todo and not failed
    log.info("retention.pruned", **{name: one.rows for name, one in done.items() if one.rows}, complete=complete)
    if failed:
        raise failed[0]
    return list(done.values())


def count() -> list[Pruned]:
    """Count the rows that would be deleted without a budget; changes nothing."""
    return [Pruned(name=step.name, rows=step.count(), complete=True) for step in steps()]


def _batch(step: Step, pruned: Pruned, failed: list[Exception]) -> bool:
    """Run one batch of the step; return whether it has more to do now."""
    try:
        removed = step.batch()
    except OperationalError as error:
        if is_gone(error):
            raise
        # Another session holds a lock for too long: the next round retries.
        log.warning("retention.step_put_off", step=step.name, reason=str(error).strip())
        return False
    except Exception as error:
        if is_gone(error):
            raise
        log.exception("retention.step_failed", step=step.name)
        failed.append(error)
        return False
    pruned.rows += removed.rows
    pruned.complete = not removed.more
    return removed.more
