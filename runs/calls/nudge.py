"""NOTIFY for callers, after the commit of a request, at most once per throttle and process: a caller that took requests soon looks
again by itself."""

import time

import structlog
from django.conf import settings
from django.db import DatabaseError

from runs.db.nudge import AT_ONCE, NOTIFY
from runs.db.sql import fetch

CHANNEL = "wakeful_caller"
UNWANTED = "unwanted"  # payload: requests may have become unwanted, as by a stop of their agent; an earlier version looks as ever
log = structlog.get_logger(__name__)
_last_sent = float("-inf")


def nudge_callers() -> None:
    global _last_sent
    now = time.monotonic()
    if now - _last_sent < settings.WAKEFUL_NOTIFY_THROTTLE.total_seconds():
        return
    _last_sent = now
    try:
        fetch(NOTIFY, [CHANNEL, AT_ONCE])
    except DatabaseError:
        log.warning("nudge.failed", exc_info=True)  # the safety look of a caller finds the request
