"""The dispatcher checks for problems periodically; its messenger thread sends the alarms that begin or end."""

import json
import time
from typing import Any

import structlog
from django.conf import settings
from django.db import DatabaseError

from runs.network import outgoing

log = structlog.get_logger(__name__)

LOOKS = 3  # check once per this many WAKEFUL_SAFETY_LOOK
TIMEOUT = 10  # seconds


class Watch:
    """Called by the dispatcher's loop. Checks once in LOOKS safety looks; one statement if nothing has changed."""

    def __init__(self) -> None:
        self.looked_at = float("-inf")

    def __call__(self) -> None:
        if time.monotonic() - self.looked_at < LOOKS * settings.WAKEFUL_SAFETY_LOOK.total_seconds():
            return
        self.looked_at = time.monotonic()
        # Here, because every process connects the watch, and only the dispatcher calls it: a worker loads no sign.
        from config.health.alarms import update_alarms

        try:
            update_alarms()
        except DatabaseError:
            raise
        except Exception:
            # A process boundary: an error while an alarm's text is made must not stop dispatch.
            log.exception("alarms.failed")


def send(payload: dict[str, Any]) -> None:
    """POST an alarm as JSON to WAKEFUL_ALARM_URL; NotTaken if the receiver does not accept it."""
    if not settings.WAKEFUL_ALARM_URL:
        return
    body = json.dumps(payload).encode()
    outgoing.send(settings.WAKEFUL_ALARM_URL, body=body, content_type="application/json", timeout=TIMEOUT)
    log.info("alarm.sent", alarm=payload["alarm"], state=payload["state"])
