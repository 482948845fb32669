"""The dispatcher looks now and then for what is wrong, and raises or ends alarms; its messenger sends them. While none is
alive, web processes say so."""

import json
import time
from typing import Any

import structlog
from django.conf import settings
from django.db import DatabaseError

from config.health.problems import NO_DISPATCHER, problems
from config.health.situation import look
from runs import alarms
from runs.models import Worker
from runs.network import outgoing
from runs.processes.alive import alive

log = structlog.get_logger(__name__)

LOOKS = 3  # of WAKEFUL_SAFETY_LOOK between two of these
TIMEOUT = 10  # seconds


class Watch:
    """Called by the dispatcher's loop; looks once in LOOKS safety looks, in one statement where nothing has changed."""

    def __init__(self) -> None:
        self.looked_at = float("-inf")

    def __call__(self) -> None:
        if time.monotonic() - self.looked_at < LOOKS * settings.WAKEFUL_SAFETY_LOOK.total_seconds():
            return
        self.looked_at = time.monotonic()
        try:
            update_alarms()
        except DatabaseError:
            raise
        except Exception:
            # One process boundary: an alarm that cannot be worded must not stop dispatch.
            log.exception("alarms.failed")


def update_alarms() -> None:
    """Raise what is wrong now and was not before, and end what is over."""
    now = look()
    wrong = {problem.name: problem for problem in problems(now)}
    for name in set(now.alarms) - set(wrong):
        alarms.end(name)
    for problem in wrong.values():
        if problem.is_alarm and problem.name not in now.alarms:
            alarms.begin(problem.name, severity=problem.severity, text=problem.text, remedy=problem.remedy)


def stand_in() -> None:
    """Raise the one alarm that dispatchers cannot: that none of them is alive. The next one ends it, and sends it."""
    if alive().filter(kind=Worker.Kind.DISPATCHER, draining_at=None).exists():
        return
    now = look()
    for problem in problems(now):
        if problem.name == NO_DISPATCHER and problem.is_alarm and problem.name not in now.alarms:
            alarms.begin(problem.name, severity=problem.severity, text=problem.text, remedy=problem.remedy)


def send(payload: dict[str, Any]) -> None:
    """POST an alarm as JSON to WAKEFUL_ALARM_URL; NotTaken where it was not."""
    if not settings.WAKEFUL_ALARM_URL:
        return
    body = json.dumps(payload).encode()
    outgoing.send(settings.WAKEFUL_ALARM_URL, body=body, content_type="application/json", timeout=TIMEOUT)
    log.info("alarm.sent", alarm=payload["alarm"], state=payload["state"])
