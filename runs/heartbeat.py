"""The dead man's ping: an outside monitor hears from Wakeful while dispatch, Beat and a worker are alive, and raises
the alarm when it does not."""

import threading
import time
import urllib.error
import urllib.request

import structlog
from django.conf import settings

from runs.sql import fetch

log = structlog.get_logger(__name__)

EVERY = 60.0  # seconds
TIMEOUT = 10.0

# Beat and dispatcher renew with the slow look, of which a few may pass; a worker has its lease.
ALIVE = """
SELECT bool_or(kind = 'beat' AND seen_at > clock_timestamp() - 3 * %(look)s::interval)
   AND bool_or(kind = 'worker' AND draining_at IS NULL AND seen_at > clock_timestamp() - %(lease)s::interval)
FROM runs_worker WHERE stopped_at IS NULL
"""


class Heartbeat:
    """Sent by the dispatcher from its own loop, so that a stuck loop falls silent."""

    def __init__(self) -> None:
        self.sent_at = float("-inf")

    def beat(self) -> None:
        """Ping, at most once a minute, where WAKEFUL_HEARTBEAT_URL is set; never in the loop's way."""
        if not settings.WAKEFUL_HEARTBEAT_URL or time.monotonic() - self.sent_at < EVERY:
            return
        if others_alive():
            self.sent_at = time.monotonic()
            threading.Thread(target=ping, args=(settings.WAKEFUL_HEARTBEAT_URL,), daemon=True).start()


def others_alive() -> bool:
    [(alive,)] = fetch(ALIVE, {"look": settings.WAKEFUL_SAFETY_LOOK, "lease": settings.WAKEFUL_LEASE})
    return bool(alive)


def ping(url: str) -> None:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT):  # noqa: S310 (the operator's own URL; a check wants http)
            log.debug("heartbeat.sent")
    except (OSError, ValueError) as error:
        log.warning("heartbeat.failed", error=str(error))
