import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import redis

from triggers.sources.brokers.message import UNREACHABLE, MessageSettings, event_of, required
from triggers.sources.http.headers import as_text
from triggers.sources.kind import Group, register
from triggers.sources.runner import BATCH, BATCH_BYTES, Assignment, Batch, Broker, Poison, Reader, Received, SourceError
from triggers.sources.settings import setting

Entry = tuple[bytes, Mapping[bytes, bytes] | None]

NEW, BEGINNING = "new", "beginning"
CONNECT_TIMEOUT, ANSWER_TIMEOUT = 5.0, 15.0  # seconds; a read blocks for less
CLAIM_IDLE = 60.0  # seconds after which an entry that another consumer of the group holds is taken over
LOOK_EVERY = 10.0  # seconds between two looks for such entries, and at the lag
TRIMMED = "it was deleted from the stream before it was confirmed; if no event has its id, its content is lost"


def redis_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "must be an address such as redis://redis.example.org:6379/0"
    if parts.scheme not in ("redis", "rediss") or not host:
        return "must be an address such as redis://redis.example.org:6379/0, or rediss:// for TLS"
    return "must not contain the password: enter it as the source's secret" if parts.password else ""


@dataclass(frozen=True, kw_only=True)
class RedisStreamsSettings(MessageSettings):
    """A stream, and where its entries hold the body."""

    url: str = setting("", "Server", "Such as redis://redis.example.org:6379/0, or rediss:// for TLS.", check=redis_url)
    stream: str = setting("", "Stream", "The key of the stream.", check=required)
    group: str = setting("", "Consumer group", "Empty: wakeful-<slug>. It is created if it does not exist.")
    start: str = setting(
        NEW,
        "Start",
        "Where a new group begins: with new entries, or at the beginning of the stream.",
        choices=(NEW, BEGINNING),
    )
    body_field: str = setting(
        "",
        "Body field",
        "The field of an entry with the body; the other fields become headers. Empty: all fields together are the event's data.",
    )
    subject_field: str = setting("", "Subject field", "The field of an entry with the event's subject.")


@register
class RedisStreams(Broker[RedisStreamsSettings]):
    name = "redis_streams"
    label = "Redis Streams"
    help_text = (
        "Reads a stream of Redis or Valkey as a consumer group, and confirms each entry after its event is recorded."
    )
    group = Group.BROKERS
    settings_class = RedisStreamsSettings
    secret_label = "Password"  # noqa: S105  (a label)
    setup = (
        "Create an ACL user that may use XREADGROUP, XACK, XAUTOCLAIM, XINFO and XGROUP on the key of the stream, and enter its "
        "name in the server's address: redis://user@host:6379/0.",
        "Enter the password as the source's secret.",
        "Give each entry one field with a JSON body, or several fields of text.",
    )
    docs_url = "https://redis.io/docs/latest/develop/data-types/streams/"

    def connect(self, assignment: Assignment[RedisStreamsSettings]) -> Reader:
        return RedisReader(assignment)


class RedisReader(Reader):
    """Reads first the entries that were delivered and not confirmed, then new ones. Of each source, one process reads at a time,
    so all of them are one consumer."""

    def __init__(self, assignment: Assignment[RedisStreamsSettings]) -> None:
        self.settings = assignment.settings
        self.stream, self.consumer = self.settings.stream, f"wakeful-{assignment.slug}"
        self.group = self.settings.group or self.consumer
        self.client = redis.Redis.from_url(
            self.settings.url,
            password=assignment.secret or None,
            socket_timeout=ANSWER_TIMEOUT,
            socket_connect_timeout=CONNECT_TIMEOUT,
            socket_keepalive=True,
            client_name=self.consumer,
        )
        self.unconfirmed_after: bytes | None = b"0"
        self.claim_after = b"0-0"
        self.look_at = 0.0
        self.count = BATCH
        self._join(assignment.position)

    def read(self, wait: float) -> Batch:
        if self.unconfirmed_after is not None and (entries := self._entries(self.unconfirmed_after)):
            self.unconfirmed_after = entries[-1][0]
            return self._batch(entries)
        self.unconfirmed_after = None
        if time.monotonic() < self.look_at:
            return self._batch(self._entries(b">", wait), is_new=True)
        if claimed := self._claim():
            return self._batch(claimed)
        self.look_at = time.monotonic() + LOOK_EVERY
        return self._batch(self._entries(b">", 0.01), is_new=True, lag=self._lag())

    def confirm(self, batch: Batch) -> None:
        self.client.xack(self.stream, self.group, *batch.receipt)

    def close(self) -> None:
        self.client.close()

    def _join(self, position: str | None) -> None:
        # A group that is gone, with its stream or without it, begins again behind the last recorded entry.
        begin = position or ("$" if self.settings.start == NEW else "0")
        try:
            self.client.xgroup_create(self.stream, self.group, id=begin, mkstream=True)
        except redis.AuthenticationError:
            raise
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise SourceError(f"The server cannot be reached: {error}", remedy=UNREACHABLE) from None
        except redis.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise SourceError(
                    f"The consumer group {self.group} cannot be created: {error}",
                    remedy=f"Check that the key {self.stream} is a stream, and that the user may use XGROUP on it.",
                ) from None

    def _entries(self, after: bytes, wait: float | None = None) -> Sequence[Entry]:
        block = None if wait is None else max(int(wait * 1000), 1)
        found: Any = self.client.xreadgroup(
            self.group, self.consumer, {self.stream: after}, count=self.count, block=block
        )
        return _of_only_stream(found)

    def _claim(self) -> Sequence[Entry]:
        """Entries that another consumer of the group holds for too long, such as one that is gone."""
        idle = int(CLAIM_IDLE * 1000)
        answer: Any = self.client.xautoclaim(
            self.stream, self.group, self.consumer, idle, start_id=self.claim_after, count=self.count
        )
        self.claim_after = answer[0]
        # Redis 7 names those that were deleted meanwhile apart, and has confirmed them.
        deleted = answer[2] if len(answer) > 2 else []
        return [*(entry for entry in answer[1] if entry[0] is not None), *((id, None) for id in deleted)]

    def _lag(self) -> int | None:
        groups: Any = self.client.xinfo_groups(self.stream)
        known = {as_text(group["name"]): group.get("lag") for group in groups}
        return known.get(self.group)

    def _batch(self, entries: Sequence[Entry], *, is_new: bool = False, lag: int | None = None) -> Batch:
        messages = [self._message(*entry) for entry in entries]
        size = sum(len(message.body or b"") for message in messages)
        self.count = max(self.count * BATCH_BYTES // size, 1) if size > BATCH_BYTES else BATCH
        ids = [id for id, _ in entries]
        position = as_text(ids[-1]) if is_new and ids else None
        return Batch(messages=messages, position=position, receipt=ids or None, lag=lag)

    def _message(self, id: bytes, fields: Mapping[bytes, bytes] | None) -> Received | Poison:
        name = as_text(id)
        if not fields:
            return Poison(id=name, reason=TRIMMED)
        texts = {as_text(field): as_text(value) for field, value in fields.items()}
        if not self.settings.body_field:
            body, headers = json.dumps(texts, ensure_ascii=False).encode(errors="replace"), {}
        elif (found := fields.get(self.settings.body_field.encode())) is not None:
            body, headers = found, {key: text for key, text in texts.items() if key != self.settings.body_field}
        else:
            reason = f"it has no field {self.settings.body_field!r}"
            return Poison(id=name, reason=reason, body=json.dumps(texts).encode())
        return event_of(
            self.settings,
            id=name,
            body=body,
            headers=headers,
            subject=texts.get(self.settings.subject_field, ""),
            time=_time_of(name),
        )


def _of_only_stream(answer: Any) -> Sequence[Entry]:
    """RESP2 answers a list of pairs, RESP3 a dictionary of lists."""
    if not answer:
        return []
    if isinstance(answer, dict):
        [entries] = answer.values()
        return entries[0] if len(entries) == 1 and isinstance(entries[0], list) else entries
    [[_, entries]] = answer
    return entries  # type: ignore[no-any-return]


def _time_of(id: str) -> datetime | None:
    """The time in an id that Redis gave; ids that the sender chose may hold any number."""
    try:
        return datetime.fromtimestamp(int(id.partition("-")[0]) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
