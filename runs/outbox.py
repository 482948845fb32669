"""Deliver the outbox. A topic handled inside the database goes in the transaction that deletes its row; one that touches a
network is pushed ahead in time, committed, sent, and then deleted: at least once.

Topics do not wait for each other: each is taken by itself. Nor do messages: what is locked or cannot be handled is put
off, and the rest goes on. Messages of a topic that this version does not know are left alone.
"""

import json
import time
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from typing import Any

import structlog
from django.db import transaction

from runs.db.patience import is_locked
from runs.db.ready import IS_PAUSED
from runs.db.sql import database_now, execute, fetch
from runs.failpoints import failpoint
from runs.models import OutboxMessage
from runs.network import broker
from runs.ports import PutOff, ports

log = structlog.get_logger(__name__)

SENDING = timedelta(seconds=60)  # a message being sent is not tried again before this
RETRY = timedelta(seconds=5)
RETRY_MAX = timedelta(minutes=10)
LOCKED_AGAIN = timedelta(seconds=1)
SEND_AT_MOST = 5.0  # seconds on end: far less than SENDING
ONE_BY_ONE = 1.0  # seconds: dispatch and rescue wait meanwhile
WAITED_FOR = 2  # locks, each LOCK_TIMEOUT; then the rest of a batch is put off
LOCK_TIMEOUT = "100ms"
LOCK_SPACE = 0x57AD  # of two-integer advisory locks; the dispatch lock has another

EVERYTHING_IS_PAUSED = IS_PAUSED.format(queue="'*'")
# The clock is read once, in a query of its own: so the index leaves out what is not available yet. One dispatcher at a time
# handles a topic, which keeps its messages in their order; and a handler that meets a lock must not wait for it long.
MINE = f"""(SELECT pg_try_advisory_xact_lock({LOCK_SPACE}, hashtext(%(topic)s::text))
  AND set_config('lock_timeout', '200ms', true) IS NOT NULL)"""
AVAILABLE = "topic = %(topic)s::text AND available_at <= (SELECT clock_timestamp())"
TAKE = f"""
DELETE FROM runs_outboxmessage WHERE id IN (
  SELECT id FROM runs_outboxmessage WHERE {AVAILABLE} AND {MINE}
  ORDER BY available_at, id LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED)
RETURNING id, topic, payload
"""  # noqa: S608  (our own parts)
LIST = f"""
SELECT id, topic, payload FROM runs_outboxmessage WHERE {AVAILABLE} ORDER BY available_at, id LIMIT %(limit)s::int
"""  # noqa: S608
TAKE_ONE = f"DELETE FROM runs_outboxmessage WHERE id = %(id)s::bigint AND topic = %(topic)s::text AND {MINE}"  # noqa: S608
RESERVE = f"""
UPDATE runs_outboxmessage SET available_at = clock_timestamp() + %(sending)s::interval, attempts = attempts + 1 WHERE id IN (
  SELECT id FROM runs_outboxmessage WHERE {AVAILABLE} AND NOT (%(held)s::boolean AND {EVERYTHING_IS_PAUSED})
  ORDER BY available_at, id LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED)
RETURNING id, topic, payload
"""  # noqa: S608
# It does not wait for the disk: should the server crash in that instant, what was sent is sent once more.
DELETE_SENT = """
DELETE FROM runs_outboxmessage WHERE id = %s::bigint AND set_config('synchronous_commit', 'off', true) IS NOT NULL
"""
POSTPONE = """
UPDATE runs_outboxmessage SET attempts = attempts + 1, last_error = %s::text,
  available_at = clock_timestamp() + least(%s::interval * power(2, least(attempts, 20)), %s::interval)
WHERE id = %s::bigint
"""
# It was not their fault, so it counts for nothing against them.
PUT_OFF = """
UPDATE runs_outboxmessage SET available_at = clock_timestamp() + %s::interval WHERE id = ANY(%s::bigint[])
"""
PUT_BACK = """
UPDATE runs_outboxmessage SET available_at = clock_timestamp() + %s::interval, attempts = greatest(attempts - 1, 0)
WHERE id = ANY(%s::bigint[])
"""

Message = tuple[int, str, dict[str, Any]]


def deliver_inside(limit: int, topics: Iterable[str] | None = None) -> int:
    """Handle what is available of these topics (or of all), up to `limit` messages of each; how many were touched."""
    return sum(_handle(topic, limit) for topic in (ports.inside if topics is None else topics))


def _handle(topic: str, limit: int) -> int:
    messages: list[Message] = []
    try:
        with transaction.atomic():
            messages = sorted(read(TAKE, {"topic": topic, "limit": limit}))
            if messages:
                ports.inside[topic]([payload for _, _, payload in messages])
            failpoint("before_outbox_commit")
        failpoint("after_outbox_commit")
        return len(messages)
    except PutOff as locked:
        # The rest is taken at the next look, without these.
        return put_off(topic, [id for id, _, payload in messages if any(payload is one for one in locked.payloads)])
    except Exception as error:
        if not is_locked(error):
            log.exception("outbox.batch_failed", topic=topic)
        # One bad message must not stop the rest: find it.
        return _one_by_one(topic, limit)


def _one_by_one(topic: str, limit: int) -> int:
    until = time.monotonic() + ONE_BY_ONE
    messages, tried, locked, waited = read(LIST, {"topic": topic, "limit": limit}), 0, list[int](), 0
    for id, _, payload in messages:
        if time.monotonic() > until or waited == WAITED_FOR:
            break
        tried += 1
        try:
            with transaction.atomic():
                if execute(TAKE_ONE, {"id": id, "topic": topic}):
                    ports.inside[topic]([payload])
        except PutOff:
            locked.append(id)
        except Exception as error:
            if is_locked(error):
                locked.append(id)
                waited += 1
            else:
                postpone(id, topic, error)
    if waited == WAITED_FOR:
        locked += [id for id, _, _ in messages[tried:]]
    return tried + (put_off(topic, locked) if locked else 0)


def put_off(topic: str, ids: Sequence[int]) -> int:
    """Look again later at messages that need a row locked elsewhere; how many."""
    log.info("outbox.locked", topic=topic, messages=len(ids))
    return execute(PUT_OFF, [LOCKED_AGAIN, list(ids)])


def say_again(topic: str, payloads: Iterable[dict[str, Any]], *, after: timedelta = LOCKED_AGAIN) -> None:
    """For a handler: leave a message for later about what it could not do now."""
    later = database_now() + after
    OutboxMessage.objects.bulk_create(OutboxMessage(topic=topic, payload=one, available_at=later) for one in payloads)


def deliver_outside(limit: int) -> int:
    """Send what is available of the topics that go to the broker; how many were taken. While everything is paused, and while
    the broker is away, they wait."""
    return sum(_send(reserve(topic, limit, held=True), ports.outside) for topic in ports.outside)


def deliver_slow() -> int:
    """Send one message of each topic whose sending may take seconds; how many were taken."""
    return sum(_send(reserve(topic, 1, held=False), ports.slow) for topic in ports.slow)


def reserve(topic: str, limit: int, *, held: bool) -> list[Message]:
    return sorted(read(RESERVE, {"topic": topic, "limit": limit, "held": held, "sending": SENDING}))


def _send(messages: Collection[Message], handlers: Any) -> int:
    until = time.monotonic() + SEND_AT_MOST
    left = [id for id, _, _ in messages]
    for id, topic, payload in messages:
        if time.monotonic() > until:
            break
        try:
            failpoint("before_send")
            handlers[topic](payload)
            failpoint("after_send")
        except broker.BrokerAway:
            break
        except Exception as error:
            postpone(id, topic, error)
        else:
            execute(DELETE_SENT, [id])
            log.debug("outbox.sent", message=id, topic=topic)
        left.remove(id)
    if left:
        execute(PUT_BACK, [timedelta(seconds=broker.breaker.retry_in), left])
    return len(messages)


def postpone(id: int, topic: str, error: Exception) -> None:
    log.error("outbox.message_failed", message=id, topic=topic, exc_info=error)
    execute(POSTPONE, [f"{type(error).__name__}: {error}"[:2000], RETRY, RETRY_MAX, id])


def read(statement: str, parameters: dict[str, Any]) -> list[Message]:
    return [(id, topic, json.loads(payload)) for id, topic, payload in fetch(statement, parameters)]
