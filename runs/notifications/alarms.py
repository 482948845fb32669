"""Alarms: each problem is reported once when it begins and once when it ends, even if many processes notice it."""

from dataclasses import dataclass
from datetime import datetime
from typing import cast
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from agents.kernel.durations import in_words
from runs.db.nudge import nudge_dispatcher
from runs.db.sql import fetch
from runs.models import Alarm, Notification, OutboxMessage

log = structlog.get_logger(__name__)

TOPIC = "alarm"
WAKEFUL = "wakeful"

# The unique index on open alarms lets one process win.
BEGIN = """
INSERT INTO runs_alarm (name, severity, text, remedy) VALUES (%s::text, %s::text, %s::text, %s::text)
ON CONFLICT (name) WHERE ended_at IS NULL DO NOTHING RETURNING id
"""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The beginning or the end of an alarm or an incident, for WAKEFUL_ALARM_URL."""

    name: str
    state: str
    severity: str
    text: str
    remedy: str = ""
    began_at: datetime
    ended_at: datetime | None = None


def topic_of(name: str, alarm_id: int | str) -> str:
    """The topic of its notifications. An alarm that begins again is news, so it names the one alarm."""
    return f"{TOPIC}:{name}:{alarm_id}"


def begin(
    name: str, *, severity: str, text: str, remedy: str = "", sender: str = WAKEFUL, run_id: UUID | None = None
) -> bool:
    """Raise the alarm of this name, with a notification and a message to WAKEFUL_ALARM_URL; False if it is already raised."""
    with transaction.atomic():
        raised = fetch(BEGIN, [name, severity, text, remedy])
        if not raised:
            return False
        [(alarm_id,)] = raised
        urgency = Notification.Urgency.HIGH if severity == Alarm.Severity.BAD else Notification.Urgency.NORMAL
        Notification.objects.create(
            sender=sender,
            run_id=run_id,
            urgency=urgency,
            text=f"{text} {remedy}".strip(),
            topic=topic_of(name, alarm_id),
            link=f"{TOPIC}:{alarm_id}",
        )
        nudge_dispatcher()
        _post(Alarm.objects.get(pk=alarm_id), "began")
    log.warning("alarm.began", alarm=name, text=text)
    return True


def end(name: str) -> bool:
    """End the alarm of this name; False if it was not raised."""
    with transaction.atomic():
        if not Alarm.objects.filter(name=name, ended_at=None).update(ended_at=Now()):
            return False
        alarm = Alarm.objects.filter(name=name).latest("id")
        lasted = in_words(cast(datetime, alarm.ended_at) - alarm.began_at)
        Notification.objects.create(
            sender=WAKEFUL,
            urgency=Notification.Urgency.LOW,
            text=f"Over after {lasted}: {alarm.text}",
            topic=topic_of(name, alarm.pk),
            link=f"{TOPIC}:{alarm.pk}",
        )
        nudge_dispatcher()
        _post(alarm, "ended")
    log.info("alarm.ended", alarm=name, lasted=lasted)
    return True


def _post(alarm: Alarm, state: str) -> None:
    report = Report(
        name=alarm.name,
        state=state,
        severity=alarm.severity,
        text=alarm.text,
        remedy=alarm.remedy,
        began_at=alarm.began_at,
        ended_at=alarm.ended_at,
    )
    post(report, key=f"{alarm.pk}:{state}")


def post(report: Report, *, key: str) -> None:
    """Send a report to WAKEFUL_ALARM_URL, if it is set, after the commit of the caller's transaction."""
    if not settings.WAKEFUL_ALARM_URL:
        return
    payload = {
        "alarm": report.name,
        "state": report.state,
        "severity": report.severity,
        "text": report.text,
        "remedy": report.remedy,
        "began_at": report.began_at.isoformat(),
        "ended_at": report.ended_at.isoformat() if report.ended_at else None,
    }
    OutboxMessage.objects.create(topic=TOPIC, key=key, payload=payload)
