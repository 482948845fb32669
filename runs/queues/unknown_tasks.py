"""Messages in Wakeful's queues of the broker that a worker cannot handle: it has no code for the task, or cannot read the message.

Celery would discard them. Such a message may be another program's, or its code comes with the next deploy; so it is kept in the
outbox, where no dispatcher takes it, until a person puts it back into its queue or discards it (`manage.py unknown_tasks`). The
problem `unknown-tasks` names it. In the queue itself it would come back at once and for ever, or hold up what is behind it.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from psycopg.types.json import Jsonb

from runs.db.sql import execute, fetch_as
from runs.network import broker
from runs.ports import UNKNOWN_TASK as TOPIC

MOST = 10_000  # messages kept; a worker leaves further ones in the broker
FOR_EVER = timedelta(days=36_500)  # until it would be available: no dispatcher handles this topic
UNREADABLE = "(unreadable)"

# With its own id, a message that is delivered again after a kill is kept once.
KEEP = f"""
INSERT INTO runs_outboxmessage (topic, key, payload, available_at, attempts, last_error, created_at)
SELECT '{TOPIC}', %(key)s::text, %(payload)s::jsonb, clock_timestamp() + %(for_ever)s::interval, 0, '', clock_timestamp()
WHERE (SELECT count(*) FROM (SELECT FROM runs_outboxmessage WHERE topic = '{TOPIC}' LIMIT %(most)s::int) kept) < %(most)s::int
  AND (%(key)s::text = '' OR NOT EXISTS (SELECT FROM runs_outboxmessage WHERE topic = '{TOPIC}' AND key = %(key)s::text))
"""  # noqa: S608  (our own parts)
IS_FULL = f"""
SELECT count(*) >= %(most)s::int AS is_full FROM (SELECT FROM runs_outboxmessage WHERE topic = '{TOPIC}' LIMIT %(most)s::int) kept
"""  # noqa: S608
LIST = f"""
SELECT id, payload, created_at::text AS at FROM runs_outboxmessage WHERE topic = '{TOPIC}' ORDER BY available_at, id
"""  # noqa: S608
DELETE = f"DELETE FROM runs_outboxmessage WHERE topic = '{TOPIC}' AND id = %s::bigint"  # noqa: S608


class Full(Exception):
    """MOST messages are kept already."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    id: int
    at: str
    queue: str
    task: str
    message: Mapping[str, Any]


def keep(message: Any) -> Kept:
    """Write down a message of kombu. Raises Full, or what the database raises."""
    payload = written(message)
    names = {
        "key": str(payload["headers"].get("id") or ""),
        "payload": Jsonb(payload),
        "for_ever": FOR_EVER,
        "most": MOST,
    }
    if not execute(KEEP, names) and is_full():
        raise Full
    return _kept(id=0, payload=payload, at="")


def written(message: Any) -> dict[str, Any]:
    """A message of kombu as JSON."""
    headers = _plain(message.headers or {})
    return {
        "queue": str((message.delivery_info or {}).get("routing_key") or ""),
        "task": str(headers.get("task") or UNREADABLE)[:200],
        "body": base64.b64encode(_bytes_of(message.body)).decode(),
        "content_type": message.content_type,
        "content_encoding": message.content_encoding,
        "headers": headers,
        "properties": {
            name: value
            for name in ("correlation_id", "reply_to", "priority", "expiration", "message_id", "type")
            if (value := (message.properties or {}).get(name)) is not None
        },
    }


def is_full() -> bool:
    return any(fetch_as(lambda is_full: bool(is_full), IS_FULL, {"most": MOST}))


def kept() -> list[Kept]:
    """Those that are kept, the oldest first."""
    return fetch_as(_kept, LIST)


def put_back(one: Kept, queue: str | None = None) -> None:
    """Into its queue or another, then delete it here: a kill in between leaves it in both. Raises what the broker raises."""
    with broker.producer() as producer:
        send(producer, {**one.message, "queue": queue or one.queue})
    discard(one)


def send(producer: Any, message: Mapping[str, Any]) -> None:
    producer.publish(
        base64.b64decode(message["body"]),
        exchange="",
        routing_key=message["queue"],
        content_type=message["content_type"] or "application/data",
        content_encoding=message["content_encoding"] or "binary",
        headers=dict(message["headers"]),
        retry=False,
        **message["properties"],
    )


def discard(one: Kept) -> None:
    execute(DELETE, [one.id])


def _kept(*, id: int, payload: Any, at: str) -> Kept:
    message = json.loads(payload) if isinstance(payload, str) else payload
    return Kept(id=id, at=at, queue=message["queue"], task=message["task"], message=message)


def _bytes_of(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else bytes(body or b"")


def _plain(headers: Mapping[str, Any]) -> dict[str, Any]:
    """The headers as JSON can hold them; a program of another kind may send any."""
    return {str(name): value for name, value in json.loads(json.dumps(dict(headers), default=str)).items()}
