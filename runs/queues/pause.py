"""Pause one queue, or all: no run of it starts. Events are still accepted and become runs, and running runs finish."""

from django.db import transaction
from django.db.models.functions import Now

from runs.db.nudge import nudge_dispatcher
from runs.exceptions import IllegalState
from runs.models import Queue, audit
from runs.queues.state import find_queue

EVERY = Queue.EVERY


def pause(name: str, *, reason: str, by: str) -> Queue:
    """Start no run of this queue, or of any with EVERY, until it is resumed.

    Raises UnknownQueue, or IllegalState if it is already paused; its reason stays.
    """
    with transaction.atomic():
        row = _row(name)
        changed = Queue.objects.filter(pk=name, paused_at=None).update(
            paused_at=Now(), paused_reason=reason, paused_by=by
        )
        if not changed:
            raise IllegalState(f"{in_words(name)} already.", "paused")
        audit.record(by, "pause", row, reason=reason)
    row.refresh_from_db()
    return row


def resume(name: str, *, by: str) -> Queue:
    """Start its runs again. A queue stays paused while all queues are. Raises UnknownQueue, IllegalState."""
    with transaction.atomic():
        row = _row(name)
        changed = Queue.objects.filter(pk=name, paused_at__isnull=False).update(
            paused_at=None, paused_reason="", paused_by=""
        )
        if not changed:
            raise IllegalState(f"{'Nothing' if name == EVERY else f'Queue {name}'} is not paused.", "active")
        audit.record(by, "resume", row)
        nudge_dispatcher()
    row.refresh_from_db()
    return row


def set_max_running(name: str, limit: int | None, *, by: str) -> Queue:
    """Let at most `limit` runs of the queue run at the same time, over all workers; None: no limit.

    Raises UnknownQueue; ValueError below 1, or for EVERY.
    """
    if name == EVERY or (limit is not None and limit < 1):
        raise ValueError("A limit is a whole number of 1 or more, for one queue. To stop all queues, pause them.")
    with transaction.atomic():
        row = _row(name)
        Queue.objects.filter(pk=name).update(max_running=limit)
        audit.record(by, "limit", row, max_running=limit)
        nudge_dispatcher()
    row.refresh_from_db()
    return row


def in_words(name: str) -> str:
    return "All queues are paused" if name == EVERY else f"Queue {name} is paused"


def _row(name: str) -> Queue:
    # Only for a known queue: otherwise a misspelt name would look paused without effect.
    find_queue(name)
    row, _ = Queue.objects.get_or_create(name=name)
    return row
