"""The dispatcher checks for problems periodically and begins or ends alarms; its messenger thread sends them. While no
dispatcher is alive, web processes begin that one alarm."""

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import DatabaseError
from django.db.models import Max

from config.health.problems import NO_DISPATCHER, problems
from config.health.situation import BROKEN_SHOWN, Situation, look
from runs.db.sql import database_now
from runs.incidents.note import Failed, Succeeded, Thing, note
from runs.models import Incident, Worker
from runs.network import outgoing
from runs.notifications import alarms
from runs.processes.alive import alive
from triggers.models import Source

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
        try:
            update_alarms()
        except DatabaseError:
            raise
        except Exception:
            # A process boundary: an error while an alarm's text is made must not stop dispatch.
            log.exception("alarms.failed")


def update_alarms() -> None:
    """Begin an alarm for each new problem, end the alarms of problems that are over, and note sources that fail."""
    now = look()
    note_sources(now)
    wrong = {problem.name: problem for problem in problems(now)}
    for name in set(now.alarms) - set(wrong):
        alarms.end(name)
    for problem in wrong.values():
        if problem.is_alarm and problem.name not in now.alarms:
            alarms.begin(problem.name, severity=problem.severity, text=problem.text, remedy=problem.remedy)


def note_sources(now: Situation) -> None:
    """A source fails while it refuses deliveries, and succeeds once its sender is authenticated again."""
    slugs = {one.slug for one in now.refused}
    closed = _latest("closed_at", slugs)
    at = database_now() if closed else None
    found: list[Failed | Succeeded] = [
        Failed(thing=_source(one.slug), error=one.reason, in_all=one.count)
        for one in now.refused
        # What was refused before a person closed the incident does not open it again.
        if at is None or one.slug not in closed or closed[one.slug] < at - timedelta(seconds=one.last)
    ]
    if len(now.refused) <= BROKEN_SHOWN:  # of more than that, only some are known
        found += _over(set(now.failing_sources) - slugs)
    note(found)


def _over(slugs: set[str]) -> Iterator[Succeeded]:
    """A sender that only fell silent has not succeeded."""
    failed = _latest("last_at", slugs)
    enabled = Source.objects.filter(slug__in=slugs, enabled=True)
    proven = dict(enabled.values_list("slug").annotate(at=Max("secrets__last_matched_at")))
    for slug in sorted(slugs):
        if slug not in proven:
            yield Succeeded(thing=_source(slug), by=alarms.WAKEFUL)  # it is removed or disabled
        elif proven[slug] and slug in failed and proven[slug] > failed[slug]:
            yield Succeeded(thing=_source(slug))


def _latest(column: str, slugs: set[str]) -> dict[str, datetime]:
    """By source; of those that have an incident with it."""
    of_sources = Incident.objects.filter(kind=Incident.Kind.SOURCE, subject__in=slugs).exclude(**{column: None})
    return dict(of_sources.values_list("subject").annotate(at=Max(column)))


def _source(slug: str) -> Thing:
    return Thing(kind=Incident.Kind.SOURCE, subject=slug, name=slug, after=settings.WAKEFUL_INCIDENT_AFTER)


def stand_in() -> None:
    """Begin the alarm that no dispatcher is alive, which dispatchers cannot begin. The next dispatcher ends and sends it."""
    if alive().filter(kind=Worker.Kind.DISPATCHER, draining_at=None).exists():
        return
    now = look()
    for problem in problems(now):
        if problem.name == NO_DISPATCHER and problem.is_alarm and problem.name not in now.alarms:
            alarms.begin(problem.name, severity=problem.severity, text=problem.text, remedy=problem.remedy)


def send(payload: dict[str, Any]) -> None:
    """POST an alarm as JSON to WAKEFUL_ALARM_URL; NotTaken if the receiver does not accept it."""
    if not settings.WAKEFUL_ALARM_URL:
        return
    body = json.dumps(payload).encode()
    outgoing.send(settings.WAKEFUL_ALARM_URL, body=body, content_type="application/json", timeout=TIMEOUT)
    log.info("alarm.sent", alarm=payload["alarm"], state=payload["state"])
