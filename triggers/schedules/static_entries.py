"""Celery's own static entries (`beat_schedule`) as rows, as django-celery-beat writes them.

django-celery-beat has one row that every edit of a periodic task updates, so a write here waits for every uncommitted edit
of any schedule. Only an entry that differs from its row is written, and a write that would have to wait is left for later.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import structlog
from celery import Celery
from celery.schedules import crontab, maybe_schedule
from django.conf import settings
from django.db import DatabaseError
from django_celery_beat.models import PeriodicTask
from django_celery_beat.schedulers import ModelEntry

from runs.db.patience import Locked, no_longer_than
from triggers.schedules.own_tasks import MARK, TABLES

log = structlog.get_logger(__name__)

BACKEND_CLEANUP = {
    "task": "celery.backend_cleanup",
    "schedule": crontab("0", "4", "*"),
    "options": {"expire_seconds": 12 * 3600},
}
PATIENCE = timedelta(milliseconds=10)


class _Unwritten(ModelEntry):  # type: ignore[misc]  # it has no types
    """A schedule entry whose crontab or interval row is only looked up, never created."""

    @classmethod
    def to_model_schedule(cls, schedule: Any) -> tuple[Any, str]:
        for schedule_type, model_type, field in cls.model_schedules:
            if isinstance(maybe_schedule(schedule), schedule_type):
                return model_type.from_schedule(maybe_schedule(schedule)), field
        raise ValueError(f"no model for {schedule!r}")


def install_static(app: Celery, *, watches_tables: bool) -> bool:
    """Write the entries that differ from their rows. False: another session holds a lock one of them needs; call again."""
    entries = dict(app.conf.beat_schedule)
    if not watches_tables:
        entries.pop(TABLES, None)
    # It deletes the results of everything on this database.
    if app.conf.result_expires and settings.WAKEFUL_ADOPT_PERIODIC_TASKS:
        entries.setdefault("celery.backend_cleanup", BACKEND_CLEANUP)
    left = [name for name, entry in entries.items() if not _install(app, name, entry)]
    return not left


def _install(app: Celery, name: str, entry: Mapping[str, Any]) -> bool:
    try:
        if not _is_installed(name, entry):
            with no_longer_than(PATIENCE):
                ModelEntry.from_entry(name, app=app, **entry)
    except Locked as error:
        log.info("beat.static_entry_put_off", entry=name, reason=str(error))
        return False
    except DatabaseError:
        raise
    except Exception:
        # One that makes no sense must not keep the others from firing.
        log.exception("beat.static_entry_refused", entry=name)
    return True


def _is_installed(name: str, entry: Mapping[str, Any]) -> bool:
    task = PeriodicTask.objects.filter(name=name).first()
    wanted = _Unwritten._unpack_fields(**entry)
    return task is not None and all(
        getattr(task, field) == value for field, value in wanted.items() if getattr(task, field) != MARK
    )
