"""Deliver the outbox. A topic handled inside the database goes in the transaction that deletes its row; one that
touches the network is pushed ahead in time, committed, sent, and then deleted: at least once. Where sending may be slow,
a Celery task does it and deletes the row; a worker that dies over it costs a minute."""

import json
from datetime import timedelta
from typing import Any

import structlog
from celery import current_app
from django.db import transaction

from runs.failpoints import failpoint
from runs.sql import execute, fetch
from runs.wiring import wiring

log = structlog.get_logger(__name__)

BY_TASK = "runs.deliver"
SENDING = timedelta(seconds=60)  # a message being sent is not tried again before this
RETRY = timedelta(seconds=5)
RETRY_MAX = timedelta(minutes=10)

# The clock is read once, in a query of its own: so the index leaves out what is not available yet.
TAKE = """
DELETE FROM runs_outboxmessage WHERE id IN (
  SELECT id FROM runs_outboxmessage WHERE available_at <= (SELECT clock_timestamp()) AND topic = ANY(%s::text[])
  ORDER BY available_at, id LIMIT %s::int FOR UPDATE SKIP LOCKED)
RETURNING id, topic, payload
"""
RESERVE = """
UPDATE runs_outboxmessage SET available_at = clock_timestamp() + %s::interval, attempts = attempts + 1 WHERE id IN (
  SELECT id FROM runs_outboxmessage WHERE available_at <= (SELECT clock_timestamp()) AND topic = ANY(%s::text[])
  ORDER BY available_at, id LIMIT %s::int FOR UPDATE SKIP LOCKED)
RETURNING id, topic, payload
"""
LIST = """
SELECT id, topic, payload FROM runs_outboxmessage WHERE available_at <= (SELECT clock_timestamp()) AND topic = ANY(%s::text[])
ORDER BY available_at, id LIMIT %s::int
"""
DELETE = "DELETE FROM runs_outboxmessage WHERE id = %s::bigint"
# It does not wait for the disk: should the server crash in that instant, what was sent is sent once more.
DELETE_SENT = f"{DELETE} AND set_config('synchronous_commit', 'off', true) IS NOT NULL"
POSTPONE = """
UPDATE runs_outboxmessage SET attempts = attempts + 1, last_error = %s::text,
  available_at = clock_timestamp() + least(%s::interval * power(2, least(attempts, 20)), %s::interval)
WHERE id = %s::bigint
"""

Message = tuple[int, str, dict[str, Any]]


def deliver(limit: int) -> int:
    """Deliver what is available, up to `limit` messages of each sort; how many were taken."""
    return deliver_inside(limit) + deliver_outside(limit) + hand_over(limit)


def deliver_inside(limit: int) -> int:
    try:
        with transaction.atomic():
            messages = sorted(read(TAKE, [list(wiring.inside), limit]))
            for topic, handler in wiring.inside.items():
                payloads = [payload for _, sent_to, payload in messages if sent_to == topic]
                if payloads:
                    handler(payloads)
            failpoint("before_outbox_commit")
        failpoint("after_outbox_commit")
        return len(messages)
    except Exception:
        # One bad message must not stop the rest: find it.
        log.exception("outbox.batch_failed")
        return _deliver_one_by_one(limit)


def _deliver_one_by_one(limit: int) -> int:
    messages = read(LIST, [list(wiring.inside), limit])
    for id, topic, payload in messages:
        try:
            with transaction.atomic():
                if execute(DELETE, [id]):
                    wiring.inside[topic]([payload])
        except Exception as error:
            postpone(id, topic, error)
    return len(messages)


def deliver_outside(limit: int) -> int:
    if not wiring.outside:
        return 0
    messages = read(RESERVE, [SENDING, list(wiring.outside), limit])
    for id, topic, payload in messages:
        try:
            failpoint("before_send")
            wiring.outside[topic](payload)
            failpoint("after_send")
        except Exception as error:
            postpone(id, topic, error)
        else:
            execute(DELETE_SENT, [id])
    return len(messages)


def hand_over(limit: int) -> int:
    if not wiring.by_task:
        return 0
    messages = read(RESERVE, [SENDING, list(wiring.by_task), limit])
    for id, topic, _ in messages:
        try:
            current_app.send_task(BY_TASK, (id,), retry=False)
        except Exception as error:
            postpone(id, topic, error)
    return len(messages)


def postpone(id: int, topic: str, error: Exception) -> None:
    log.error("outbox.message_failed", message=id, topic=topic, exc_info=error)
    execute(POSTPONE, [f"{type(error).__name__}: {error}"[:2000], RETRY, RETRY_MAX, id])


def read(statement: str, parameters: list[Any]) -> list[Message]:
    return [(id, topic, json.loads(payload)) for id, topic, payload in fetch(statement, parameters)]
