"""Keep the runs of one queue, or of all, from being started. Events are accepted and become runs all the same, and
what runs already finishes."""

from django.db import transaction
from django.db.models.functions import Now

from runs import audit
from runs.db.nudge import nudge_dispatcher
from runs.exceptions import IllegalState
from runs.models import Queue
from runs.queues.state import find_queue

EVERY = Queue.EVERY


def pause(name: str, *, reason: str, by: str) -> Queue:
    """Start no run of this queue, or of any with EVERY, until it is resumed.

    Raises UnknownQueue, or IllegalState when it is paused already: then that reason stands.
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
    """Let its runs start again, the best first. A queue stays paused while all are. Raises UnknownQueue, IllegalState."""
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
    """Let at most `limit` runs of the queue run at once, over all workers; None: as many as there are children.

    Raises UnknownQueue; ValueError below 1, or for EVERY.
    """
    if name == EVERY or (limit is not None and limit < 1):
        raise ValueError("A limit is a whole number of 1 or more, for one queue; to stop them all, pause.")
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
    # Only of a queue that is there: a misspelt name would look paused, and nothing would be.
    find_queue(name)
    row, _ = Queue.objects.get_or_create(name=name)
    return row
