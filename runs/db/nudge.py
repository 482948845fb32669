"""NOTIFY for the dispatcher. Inside a transaction it would serialise all writers at commit (measured: a quarter of the
inserts), so it is sent after the commit, and at most once per throttle per process: the dispatcher keeps looking for
more than twice that long after its last work."""

import time

import structlog
from django.conf import settings
from django.db import DatabaseError, transaction

from runs.db.sql import fetch

CHANNEL = "wakeful_dispatcher"

log = structlog.get_logger(__name__)
LATER = 0.5  # seconds
# NOTIFY makes a transaction of its own, whose commit would wait for the disk; nothing is lost with it.
NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, '')"
_last_sent = float("-inf")
_owed = False
_is_dispatcher = False


def stay_awake() -> None:
    """Called by the dispatcher: after its own work it looks again by itself, so this process sends no nudges."""
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
        # What was committed is safe, and the dispatcher's slow look finds it.
        log.warning("nudge.failed", exc_info=True)


def nudge_later() -> None:
    """The same for what can wait for LATER. A process that calls this calls `flush` before it falls idle."""
    transaction.on_commit(_send_later)


def flush() -> None:
    """Send the nudge that is still owed, if any."""
    global _owed
    if _owed:
        _owed = False
        _send()


def _send_later() -> None:
    global _owed
    _owed = True
    if time.monotonic() - _last_sent >= LATER:
        flush()
