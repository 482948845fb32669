"""Deliver the outbox, at least once. A message for a handler inside the database is handled in the transaction that deletes its
row. A message for the network is first moved into the future and committed, then sent, then deleted.

Topics do not wait for each other, and neither do messages: one that is locked or cannot be handled is postponed. Messages of
unknown topics, from a newer version, are left alone.
"""

import json
import time
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from typing import Any

import structlog
from django.db import transaction

from runs.db.patience import is_locked
from runs.db.ready_runs import IS_PAUSED
from runs.db.sql import database_now, execute, fetch
from runs.failpoints import failpoint
from runs.models import OutboxMessage
from runs.network import broker
from runs.ports import PutOff, ports

log = structlog.get_logger(__name__)

SENDING = timedelta(seconds=60)  # until a message that is being sent is tried again
RETRY = timedelta(seconds=5)
RETRY_MAX = timedelta(minutes=10)
LOCKED_AGAIN = timedelta(seconds=1)
SEND_AT_MOST = 5.0  # seconds of one batch: far less than SENDING
ONE_BY_ONE = 1.0  # seconds; dispatch and rescue wait meanwhile
WAITED_FOR = 2  # locks of a batch to wait for; then the rest of it is postponed
LOCK_SPACE = 0x57AD  # of two-integer advisory locks; the dispatch lock has another

EVERYTHING_IS_PAUSED = IS_PAUSED.format(queue="'*'")
# The clock is read once, in a sub-SELECT, so that the index leaves out later messages. One dispatcher at a time handles a topic,
# which keeps its messages in order; the short lock_timeout limits how long a handler waits.
MINE = f"""(SELECT pg_try_advisory_xact_lock({LOCK_SPACE}, hashtext(%(topic)s::text))
  AND set_config('lock_timeout', '200ms', true) IS NOT NULL)"""
AVAILABLE = "topic = %(topic)s::text AND available_at <= (SELECT clock_timestamp())"
TAKE = f"""
DELETE FROM runs_outboxmessage WHERE id = ANY(ARRAY(
  SELECT id FROM runs_outboxmessage WHERE {AVAILABLE} AND {MINE}
  ORDER BY available_at, id LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED))
RETURNING id, topic, payload
"""  # noqa: S608  (our own parts)
LIST = f"""
SELECT id, topic, payload FROM runs_outboxmessage WHERE {AVAILABLE} ORDER BY available_at, id LIMIT %(limit)s::int
"""  # noqa: S608
TAKE_ONE = f"DELETE FROM runs_outboxmessage WHERE id = %(id)s::bigint AND topic = %(topic)s::text AND {MINE}"  # noqa: S608
RESERVE = f"""
UPDATE runs_outboxmessage SET available_at = clock_timestamp() + %(sending)s::interval, attempts = attempts + 1
WHERE id = ANY(ARRAY(
  SELECT id FROM runs_outboxmessage WHERE {AVAILABLE} AND NOT (%(held)s::boolean AND {EVERYTHING_IS_PAUSED})
  ORDER BY available_at, id LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED))
RETURNING id, topic, payload
"""  # noqa: S608
# It does not wait for the disk: after a crash of the server at that moment, the message is sent once more.
DELETE_SENT = """
DELETE FROM runs_outboxmessage WHERE id = %s::bigint AND set_config('synchronous_commit', 'off', true) IS NOT NULL
"""
POSTPONE = """
UPDATE runs_outboxmessage SET attempts = attempts + 1, last_error = %s::text,
  available_at = clock_timestamp() + least(%s::interval * power(2, least(attempts, 20)), %s::interval)
WHERE id = %s::bigint
"""
# The messages did not fail, so no attempt is counted.
PUT_OFF = """
UPDATE runs_outboxmessage SET available_at = clock_timestamp() + %s::interval WHERE id = ANY(%s::bigint[])
"""
PUT_BACK = """
UPDATE runs_outboxmessage SET available_at = clock_timestamp() + %s::interval, attempts = greatest(attempts - 1, 0)
WHERE id = ANY(%s::bigint[])
"""

Row = tuple[
    int, str, str
]  # id, topic, and the payload as JSON: a message whose payload cannot be read does not stop the others
Message = tuple[int, dict[str, Any]]


def deliver_inside(limit: int, topics: Iterable[str] | None = None) -> int:
    """Handle the available messages of these topics (or of all), up to `limit` of each; return how many."""
    return sum(_handle(topic, limit) for topic in (ports.inside if topics is None else topics))


def _handle(topic: str, limit: int) -> int:
    messages: list[Message] = []
    try:
        with transaction.atomic():
            taken = sorted(fetch(TAKE, {"topic": topic, "limit": limit}))
            messages = [(message, json.loads(payload)) for message, _, payload in taken]
            if messages:
                ports.inside[topic]([payload for _, payload in messages])
            failpoint("before_outbox_commit")
        failpoint("after_outbox_commit")
        return len(messages)
    except PutOff as locked:
        # The next pass takes the rest, without these.
        busy = [message for message, payload in messages if any(payload is one for one in locked.payloads)]
        return put_off(topic, busy)
    except Exception as error:
        if not is_locked(error):
            log.exception("outbox.batch_failed", topic=topic)
        # Find the bad message, so that it does not stop the rest.
        return _one_by_one(topic, limit)


def _one_by_one(topic: str, limit: int) -> int:
    until = time.monotonic() + ONE_BY_ONE
    messages, tried, locked, waited = fetch(LIST, {"topic": topic, "limit": limit}), 0, list[int](), 0
    for message, _, payload in messages:
        if time.monotonic() > until or waited == WAITED_FOR:
            break
        tried += 1
        try:
            with transaction.atomic():
                if execute(TAKE_ONE, {"id": message, "topic": topic}):
                    ports.inside[topic]([json.loads(payload)])
        except PutOff:
            locked.append(message)
        except Exception as error:
            if is_locked(error):
                locked.append(message)
                waited += 1
            else:
                postpone(message, topic, error)
    if waited == WAITED_FOR:
        locked += [message for message, _, _ in messages[tried:]]
    return tried + (put_off(topic, locked) if locked else 0)


def put_off(topic: str, ids: Sequence[int]) -> int:
    """Postpone messages that need a row locked elsewhere; return how many."""
    log.info("outbox.locked", topic=topic, messages=len(ids))
    return execute(PUT_OFF, [LOCKED_AGAIN, list(ids)])


def say_again(topic: str, payloads: Iterable[dict[str, Any]], *, after: timedelta = LOCKED_AGAIN) -> None:
    """Write messages for later, for payloads that a handler could not handle now."""
    later = database_now() + after
    OutboxMessage.objects.bulk_create(OutboxMessage(topic=topic, payload=one, available_at=later) for one in payloads)


def deliver_outside(limit: int) -> int:
    """Send the available messages of the topics that go to the broker; return how many were taken. They wait while all queues
    are paused or the broker is away."""
    return sum(_send(reserve(topic, limit, held=True), ports.outside) for topic in ports.outside)


def deliver_slow() -> int:
    """Send one message of each topic whose sending may take seconds; return how many were taken."""
    return sum(_send(reserve(topic, 1, held=False), ports.slow) for topic in ports.slow)


def reserve(topic: str, limit: int, *, held: bool) -> list[Row]:
    return sorted(fetch(RESERVE, {"topic": topic, "limit": limit, "held": held, "sending": SENDING}))


def _send(messages: Collection[Row], handlers: Any) -> int:
    until = time.monotonic() + SEND_AT_MOST
    left = [message for message, _, _ in messages]
    for message, topic, payload in messages:
        if time.monotonic() > until:
            break
        try:
            failpoint("before_send")
            handlers[topic](json.loads(payload))
            failpoint("after_send")
        except broker.BrokerAway:
            break
        except Exception as error:
            postpone(message, topic, error)
        else:
            execute(DELETE_SENT, [message])
            log.debug("outbox.sent", message=message, topic=topic)
        left.remove(message)
    if left:
        execute(PUT_BACK, [timedelta(seconds=broker.breaker.retry_in), left])
    return len(messages)


def postpone(message: int, topic: str, error: Exception) -> None:
    log.error("outbox.message_failed", message=message, topic=topic, exc_info=error)
    execute(POSTPONE, [f"{type(error).__name__}: {error}"[:2000], RETRY, RETRY_MAX, message])
