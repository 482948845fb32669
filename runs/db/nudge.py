"""NOTIFY for the dispatcher. Inside a transaction it would serialize all writers at commit (measured: a quarter of the inserts).
So it is sent after the commit, at most once per throttle and process: after its last work, the dispatcher keeps looking for more
than twice that long."""

import time

import structlog
from django.conf import settings
from django.db import DatabaseError, transaction

from runs.db.sql import fetch

CHANNEL = "wakeful_dispatcher"

log = structlog.get_logger(__name__)
LATER = 0.5  # seconds
# NOTIFY is a transaction of its own; its commit need not wait for the disk, because it writes nothing.
NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, '')"
_last_sent = float("-inf")
_owed = False
_is_dispatcher = False


def stay_awake() -> None:
    """Send no nudges from this process: the dispatcher looks again after its own work."""
    global _is_dispatcher
    _is_dispatcher = True


def nudge_dispatcher() -> None:
    """Wake the dispatcher once the current transaction, if any, has committed."""
    transaction.on_commit(_send)


def _send() -> None:
    global _last_sent
    now = time.monotonic()
    if _is_dispatcher or now - _last_sent < settings.WAKEFUL_NOTIFY_THROTTLE.total_seconds():
        return
    _last_sent = now
    try:
        fetch(NOTIFY, [CHANNEL])
    except DatabaseError:
        # The commit is safe, and the dispatcher's safety look finds it.
        log.warning("nudge.failed", exc_info=True)


def nudge_later() -> None:
    """Like `nudge_dispatcher`, but it may wait for LATER. The process must call `flush` before it becomes idle."""
    transaction.on_commit(_send_later)


def flush() -> None:
    """Send the delayed nudge, if any."""
    global _owed
    if _owed:
        _owed = False
        _send()


def _send_later() -> None:
    global _owed
    _owed = True
    if time.monotonic() - _last_sent >= LATER:
        flush()
