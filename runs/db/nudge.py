"""NOTIFY for the dispatcher. Inside a transaction it would serialize all writers at commit (measured: a quarter of the inserts).
So it is sent after the commit, at most once per throttle and process. One that is left out comes within the throttle after one that
was sent, and the dispatcher looks once more then (`triggers.dispatch.follow_up`)."""

import time

import structlog
from django.conf import settings
from django.db import DatabaseError, transaction

from runs.db.sql import fetch

CHANNEL = "wakeful_dispatcher"

log = structlog.get_logger(__name__)
LATER = 0.5  # seconds
AT_ONCE, CAN_WAIT = "", "can wait"  # payloads; a dispatcher of an earlier version looks at once for both
# NOTIFY is a transaction of its own; its commit need not wait for the disk, because it writes nothing.
NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"
_last_sent = float("-inf")
_last_at_once = float("-inf")
_owed = False
_is_dispatcher = False


def stay_awake() -> None:
    """Send no nudges from this process: the dispatcher looks again after its own work."""
    global _is_dispatcher
    _is_dispatcher = True


def nudge_dispatcher() -> None:
    """Wake the dispatcher once the current transaction, if any, has committed."""
    transaction.on_commit(_send)


def take_turn(payload: str = AT_ONCE) -> bool:
    """Whether a nudge is to be sent now; then the throttle begins again."""
    global _last_sent, _last_at_once
    now = time.monotonic()
    last = _last_at_once if payload == AT_ONCE else _last_sent
    if _is_dispatcher or now - last < settings.WAKEFUL_NOTIFY_THROTTLE.total_seconds():
        return False
    _last_sent, _last_at_once = now, now if payload == AT_ONCE else _last_at_once
    return True


def note_failed() -> None:
    """The commit is safe, and the dispatcher's safety look finds it, or the next nudge, which is sent."""
    global _last_sent, _last_at_once
    _last_sent = _last_at_once = float("-inf")
    log.warning("nudge.failed", exc_info=True)


def _send(payload: str = AT_ONCE) -> None:
    if take_turn(payload):
        try:
            fetch(NOTIFY, [CHANNEL, payload])
        except DatabaseError:
            note_failed()


def nudge_later() -> None:
    """Like `nudge_dispatcher`, but it may wait for LATER, and then for the dispatcher's next look, some milliseconds after. The
    process must call `flush` before it becomes idle."""
    transaction.on_commit(_send_later)


def flush() -> None:
    """Send the delayed nudge, if any."""
    global _owed
    if _owed:
        _owed = False
        _send(CAN_WAIT)


def _send_later() -> None:
    global _owed
    _owed = True
    if time.monotonic() - _last_sent >= LATER:
        flush()
