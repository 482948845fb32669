"""Messages to people about incidents.

- One message when an incident opens, one all-clear when it is closed.
- It opens again within WAKEFUL_INCIDENT_COOLDOWN of its end: the same incident. From then on people get its state at
  most once per cooldown, and only if it differs from the last message.
- An urgent one that is neither acknowledged, muted nor closed is escalated: after WAKEFUL_ESCALATE_AFTER to the first recipient of
  WAKEFUL_ESCALATE_TO, after the same time to the next, each once.
- A muted one sends nothing. `tell_at` is the end of its mute.
- WAKEFUL_INCIDENT_MESSAGES incidents an hour open with a message of their own. One alarm stands for the others, which get no
  all-clear either (`config.health.problems`).
"""

from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Q

from agents.kernel.durations import in_words
from runs.db.nudge import nudge_dispatcher
from runs.db.sql import database_now
from runs.incidents.lock import lock
from runs.models import Incident, Notification
from runs.notifications import alarms

log = structlog.get_logger(__name__)

BATCH = 500  # incidents per pass; the next pass continues
HOUR = timedelta(hours=1)
LINK = "incident"  # with its id, also the topic
SAID_LENGTH = 500  # characters of an error
Kind, Told = Incident.Kind, Incident.Told
# A thing, and its failures: one, many.
WORDS = {
    Kind.TRIGGER: ("Trigger {name}", ("failed run", "failed runs")),
    Kind.AGENT: ("Agent {name}", ("failed run", "failed runs")),
    Kind.ITEM: ("“{name}” of the checklist of {agent}", ("failed look", "failed looks")),
    Kind.SOURCE: ("Source {name}", ("refused delivery", "refused deliveries")),
}


def topic_of(incident: Incident) -> str:
    return f"{LINK}:{incident.pk}"


def tell_due() -> int:
    """Tell people of the incidents whose time has come; returns how many. Costs one query if there is none."""
    if not Incident.objects.filter(tell_at__lte=database_now()).exists():
        return 0
    with transaction.atomic():
        lock()
        return tell()


def tell() -> int:
    """Do the work of `tell_due` in the caller's transaction, which holds the lock of incidents."""
    now = database_now()
    due = Incident.objects.select_for_update().filter(tell_at__lte=now).order_by("tell_at", "id")[:BATCH]
    incidents = list(due)
    if not incidents:
        return 0
    since = now - HOUR
    begun = Incident.objects.filter(told_at__gt=since).filter(Q(opened_at__gt=since) | Q(reopened__gt=0))
    left = max(settings.WAKEFUL_INCIDENT_MESSAGES - begun.count(), 0)
    fresh = []
    for incident in incidents:
        if incident.is_muted:
            _unmute(incident, now)
        elif not incident.is_open:
            _say(incident, Told.CLOSED, now)
        elif incident.told == Told.OPEN:
            _escalate(incident, now)
        else:
            fresh.append(incident)
    for incident in fresh[:left]:
        _say(incident, Told.OPEN, now)
    untold = Incident.objects.filter(pk__in=[incident.pk for incident in fresh[left:]])
    untold.exclude(told="").update(tell_at=now + settings.WAKEFUL_INCIDENT_COOLDOWN)
    untold.filter(told="").update(tell_at=None)
    nudge_dispatcher()
    return len(incidents)


def _unmute(incident: Incident, now: datetime) -> None:
    incident.unmute(now=now, cooldown=settings.WAKEFUL_INCIDENT_COOLDOWN)
    incident.save(update_fields=[*Incident.MUTE, "tell_at"])


def _escalate(incident: Incident, now: datetime) -> None:
    if not incident.escalates_at(now):  # the settings have changed since
        Incident.objects.filter(pk=incident.pk).update(tell_at=None)
        return
    to = settings.WAKEFUL_ESCALATE_TO[incident.escalated]
    incident.escalated += 1
    incident.tell_at = incident.escalates_at(now)
    incident.save(update_fields=["escalated", "tell_at"])
    lasts = in_words(now - (incident.told_at or now))
    Notification.objects.create(
        sender=incident.agent or incident.name,
        run_id=incident.last_run_id,
        urgency=Notification.Urgency.HIGH,
        text=f"Not acknowledged for {lasts}. {opened(incident)}",
        topic=topic_of(incident),
        link=topic_of(incident),
        to=[to],
    )
    log.warning("incident.escalated", incident=incident.pk, step=incident.escalated, to=to)


def _say(incident: Incident, state: Incident.Told, now: datetime) -> None:
    again = bool(incident.told)
    incident.told, incident.told_at, incident.tell_at = state, now, incident.escalates_at(now)
    incident.save(update_fields=["told", "told_at", "tell_at"])
    is_open = state == Told.OPEN
    text = opened(incident, again=again) if is_open else closed(incident)
    Notification.objects.create(
        sender=incident.agent or incident.name,
        run_id=incident.last_run_id,
        urgency=incident.urgency if is_open else Notification.Urgency.LOW,
        text=text,
        topic=topic_of(incident),
        link=topic_of(incident),
    )
    alarms.post(
        alarms.Report(
            name=topic_of(incident),
            state="began" if is_open else "ended",
            severity="warning",
            text=text,
            began_at=incident.opened_at or now,
            ended_at=incident.closed_at,
        ),
        key=f"{topic_of(incident)}:{incident.reopened}:{state}",
    )


def opened(incident: Incident, *, again: bool = False) -> str:
    thing, _ = words_of(incident)
    if again:
        begins = f"{thing} fails again: {failures_of(incident, incident.count)} in all"
    else:
        begins = f"{thing}: {failures_of(incident, incident.in_a_row)} in a row"
    return f"{begins}. {said(incident.error) or incident.cause}"


def closed(incident: Incident) -> str:
    thing, _ = words_of(incident)
    lasted = in_words((incident.closed_at or incident.last_at) - (incident.opened_at or incident.first_at))
    ends = f"{thing}: closed by {incident.closed_by}" if incident.closed_by else f"{thing} succeeds again"
    requeue = " Its failed runs can be requeued in one step." if incident.covered.exists() else ""
    return f"{ends}, after {lasted} with {failures_of(incident, incident.count)}. The cause was: {incident.cause}.{requeue}"


def words_of(incident: Incident) -> tuple[str, str]:
    """What fails, and what its failures are called."""
    thing, (_, failures) = WORDS[Kind(incident.kind)]
    return thing.format(name=incident.name, agent=incident.agent), failures


def failures_of(incident: Incident, count: int) -> str:
    """E.g. “1 failed run”."""
    one, many = WORDS[Kind(incident.kind)][1]
    return f"{count:,} {one if count == 1 else many}"


def said(error: str) -> str:
    """The first line of an error."""
    line = next((line for line in error.splitlines() if line.strip()), "").strip()
    return line if len(line) <= SAID_LENGTH else f"{line[: SAID_LENGTH - 1]}…"
