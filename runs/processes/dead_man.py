"""The dead man's switch: Wakeful pings an outside monitor while dispatch, Beat and a worker are alive; the monitor alarms when the
pings stop."""

import threading
import time

import structlog
from django.conf import settings

from runs.db.sql import fetch
from runs.network import outgoing
from runs.processes.alive import IS_ALIVE
from runs.processes.lease import patience

log = structlog.get_logger(__name__)

TIMEOUT = 10.0

OTHERS = f"""
SELECT bool_or(kind = 'beat') AND bool_or(kind = 'worker' AND draining_at IS NULL) FROM runs_worker worker WHERE {IS_ALIVE}
"""  # noqa: S608  (our own parts)


class Heartbeat:
    """Sent by the dispatcher from its own loop, so that a stuck loop falls silent."""

    def __init__(self) -> None:
        self.sent_at = float("-inf")
        self.sender: threading.Thread | None = None

    def beat(self) -> None:
        """Ping WAKEFUL_HEARTBEAT_URL, if set, once per WAKEFUL_HEARTBEAT_EVERY, without blocking the loop."""
        is_due = time.monotonic() - self.sent_at >= settings.WAKEFUL_HEARTBEAT_EVERY.total_seconds()
        if not settings.WAKEFUL_HEARTBEAT_URL or not is_due:
            return
        if self.sender and self.sender.is_alive():
            return  # at most one ping hangs
        if others_alive():
            self.sent_at = time.monotonic()
            self.sender = threading.Thread(target=ping, args=(settings.WAKEFUL_HEARTBEAT_URL,), daemon=True)
            self.sender.start()


def others_alive() -> bool:
    [(alive,)] = fetch(OTHERS, patience())
    return bool(alive)


def ping(url: str) -> None:
    """Never raises: the monitor notices a failed ping."""
    try:
        outgoing.send(url, timeout=TIMEOUT)
        log.debug("heartbeat.sent")
    except outgoing.NotTaken as error:
        log.warning("heartbeat.failed", error=str(error))
    except Exception as error:
        log.warning("heartbeat.failed", error=type(error).__name__)  # its text may contain the address
