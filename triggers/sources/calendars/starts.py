"""Starts of events. The dispatcher records each at its time: it waits in the outbox until then, so that it needs neither the calendar's
server nor the process that polls it. An event that is moved or cancelled takes its message with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog

from runs.db.nudge import nudge_dispatcher
from runs.db.sql import database_now, execute
from runs.models import OutboxMessage
from triggers.accept import Incoming, accept
from triggers.models import Source
from triggers.sources.calendars import TOPIC
from triggers.sources.calendars.entry import CANCELLED, Occurrence, digest_of, instant
from triggers.sources.runner import origin_of
from triggers.sources.webhooks.naming import is_name

log = structlog.get_logger(__name__)

STARTS, MISSED = "calendar.starts", "calendar.missed"
MOST = 1_000  # starts that are waited for, the soonest ones

Waiting = Mapping[str, Sequence[str]]  # by the key of an occurrence: its start, and a digest of its data

# One that the dispatcher is handling at this moment has started.
DROP = f"""
DELETE FROM runs_outboxmessage WHERE id = ANY(ARRAY(
  SELECT id FROM runs_outboxmessage WHERE topic = '{TOPIC}' AND key = %(source)s::text
    AND (%(keys)s::text[] IS NULL OR payload->>'occurrence' = ANY(%(keys)s::text[])) FOR UPDATE SKIP LOCKED))
"""  # noqa: S608  (a constant)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How long before a start its event is due, and until how long after it."""

    before: timedelta
    late: timedelta
    whole_days: bool


@dataclass(kw_only=True)
class Plan:
    """The changes of the messages that wait, and what waits after them."""

    waiting: dict[str, list[str]] = field(default_factory=dict)
    drop: list[str] | None = field(default_factory=list)  # keys; None: all
    put: list[OutboxMessage] = field(default_factory=list)


def plan(source_id: UUID, waiting: Waiting, there: Sequence[Occurrence], terms: Terms, now: datetime) -> Plan:
    """What is to wait, of these occurrences. One that has begun is left as it is."""
    found = Plan()
    for one in sorted(filter(terms_allow(terms), there), key=lambda each: each.starts_at):
        if one.starts_at <= now or one.key in found.waiting or len(found.waiting) >= MOST:
            continue
        as_it_is = [one.starts_at.isoformat(), digest_of(one.data)]
        found.waiting[one.key] = as_it_is
        old = list(waiting.get(one.key, ()))
        if old == as_it_is:
            continue
        due_at = one.starts_at - terms.before
        is_done = bool(old) and old[0] == as_it_is[0] and due_at <= now
        if old and not is_done:
            _drop(found, one.key)
        if not is_done:
            found.put.append(_message(source_id, one, max(due_at, now), terms))
    for key, (start, _) in waiting.items():
        if key not in found.waiting and instant(start) > now:
            _drop(found, key)
    return found


def terms_allow(terms: Terms) -> Any:
    def allowed(one: Occurrence) -> bool:
        data = one.data
        is_off = data["status"] == CANCELLED or data["response"] == "declined"
        return not is_off and (terms.whole_days or not data["is_all_day"])

    return allowed


def write(source_id: UUID, found: Plan) -> None:
    """In the transaction that records the position."""
    if found.drop is None or found.drop:
        execute(DROP, {"source": str(source_id), "keys": found.drop})
    if found.put:
        OutboxMessage.objects.bulk_create(found.put)
        nudge_dispatcher()  # it may sleep for longer


def begin(payloads: Sequence[dict[str, Any]]) -> None:
    """Record the starts that are due. What comes so late that it is of no use is recorded as missed."""
    now = database_now()
    sources = Source.objects.filter(id__in={payload["source"] for payload in payloads}, enabled=True)
    slugs = {str(id): slug for id, slug in sources.values_list("id", "slug")}
    accept([_event(payload, slugs[payload["source"]], now) for payload in payloads if payload["source"] in slugs])
    for payload in payloads:
        if payload["source"] not in slugs:
            log.info("calendar.start_dropped", source=payload["source"], reason="its source is disabled or gone")


def _drop(found: Plan, key: str) -> None:
    if found.drop is not None:
        found.drop.append(key)


def _message(source_id: UUID, one: Occurrence, at: datetime, terms: Terms) -> OutboxMessage:
    payload = {
        "source": str(source_id),
        "occurrence": one.key,
        "starts_at": one.starts_at.isoformat(),
        "useful_until": (one.starts_at + terms.late).isoformat(),
        "data": dict(one.data),
    }
    return OutboxMessage(topic=TOPIC, key=str(source_id), payload=payload, available_at=at)


def _event(payload: Mapping[str, Any], slug: str, now: datetime) -> Incoming:
    data, starts_at = payload["data"], instant(payload["starts_at"])
    is_missed = now > instant(payload["useful_until"])
    if is_missed:
        data = {**data, "late_by": round((now - starts_at).total_seconds(), 3)}
        log.warning("calendar.start_missed", source=slug, late_by=data["late_by"])
    address = data["organizer"]["address"]
    return Incoming(
        source_id=UUID(payload["source"]),
        ce_source=origin_of(slug),
        # Once for each occurrence and start, also if the event is moved away and back.
        ce_id=f"starts/{payload['occurrence']}/{starts_at.isoformat()}",
        type=MISSED if is_missed else STARTS,
        subject=address if is_name(address) else "",
        time=starts_at,
        data=data,
    )
