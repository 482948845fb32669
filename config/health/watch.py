"""A thread of the dispatcher looks for problems periodically; its messenger thread sends the alarms that begin or end."""

import json
from typing import Any

import structlog
from django.conf import settings
from django.db import connection

from runs.network import outgoing
from runs.queues.courier import Courier

log = structlog.get_logger(__name__)

LOOKS = 3  # check once per this many WAKEFUL_SAFETY_LOOK
TIMEOUT = 10  # seconds


class Watch(Courier):
    """Checks once in LOOKS safety looks; one statement if nothing has changed, of a session that stays open."""

    name_of = "health"

    def errand(self) -> float:
        # Here, because every process connects the watch, and only the dispatcher has it: a worker loads no sign.
        from config.health.alarms import update_alarms

        try:
            update_alarms()
        except Exception:
            # The boundary of the thread: what fails at each check, such as a slow statement, is not repeated before the next one.
            log.exception("alarms.failed")
            connection.close()
        return LOOKS * settings.WAKEFUL_SAFETY_LOOK.total_seconds()


def send(payload: dict[str, Any]) -> None:
    """POST an alarm as JSON to WAKEFUL_ALARM_URL; NotTaken if the receiver does not accept it."""
    if not settings.WAKEFUL_ALARM_URL:
        return
    body = json.dumps(payload).encode()
    outgoing.send(settings.WAKEFUL_ALARM_URL, body=body, content_type="application/json", timeout=TIMEOUT)
    log.info("alarm.sent", alarm=payload["alarm"], state=payload["state"])
