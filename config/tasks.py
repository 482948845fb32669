"""Maintenance that Beat fires as ordinary periodic tasks; see CELERY_BEAT_SCHEDULE."""

from celery import shared_task
from django.conf import settings
from django.db import close_old_connections

from config.retention import prune as prune_now
from runs.models import Worker
from runs.worker import parent
from triggers.overnight.digest import tell
from triggers.sources.databases.tables.keep import keep_tables
from triggers.sources.databases.tables.sweep import sweep_tables


@shared_task(name="wakeful.prune", ignore_result=False)
def prune() -> dict[str, int]:
    """Delete old rows; returns their numbers by step. Stops early if its worker is stopping."""
    close_old_connections()
    stopping = Worker.objects.filter(id=parent.WORKER_ID, draining_at__isnull=False)
    done = prune_now(budget=settings.WAKEFUL_PRUNE_BUDGET, stop=stopping.exists)
    return {one.name: one.rows for one in done if one.rows}


@shared_task(name="wakeful.tables", ignore_result=False)
def tables() -> dict[str, str]:
    """Look after the triggers of watched tables, and go on with the sweeps that are due; returns what these have found."""
    close_old_connections()
    keep_tables()
    return sweep_tables(budget=settings.WAKEFUL_SWEEP_BUDGET)


@shared_task(name="wakeful.digest")
def digest() -> None:
    """Tell people what ran overnight, once a day, from WAKEFUL_DIGEST_HOUR on."""
    close_old_connections()
    tell()
