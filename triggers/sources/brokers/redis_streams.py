import json
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import redis

from triggers.sources.brokers.message import UNREACHABLE, MessageSettings, event_of, required
from triggers.sources.brokers.redis_numbers import ZERO, Id, StreamState, id_of
from triggers.sources.continuity import Gaps, Mark, Reason, Span
from triggers.sources.http.headers import as_text
from triggers.sources.kind import Group, register
from triggers.sources.runner import BATCH, BATCH_BYTES, Assignment, Batch, Broker, Poison, Reader, Received, SourceError
from triggers.sources.settings import server_of, setting

Entry = tuple[bytes, Mapping[bytes, bytes] | None]

NEW, BEGINNING = "new", "beginning"
CONNECT_TIMEOUT, ANSWER_TIMEOUT = 5.0, 15.0  # seconds; a read blocks for less
CLAIM_IDLE = 60.0  # seconds after which an entry that another consumer of the group holds is taken over
LOOK_EVERY = 10.0  # seconds between two looks for such entries, for other consumers, and at the lag
# The number of entries requested: at first few, since their size is not known; then at most this many times more than
# before.
FIRST_COUNT, GROWTH = 10, 10
# The client knows others that open files.
OPTIONS = {"db", "protocol", "ssl_ca_certs", "ssl_cert_reqs", "ssl_check_hostname"}
TRIMMED = "it was deleted from the stream before it was confirmed; if no event has its id, its content is lost"


def redis_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "must be an address such as redis://redis.example.org:6379/0"
    if parts.scheme not in ("redis", "rediss") or not host:
        return "must be an address such as redis://redis.example.org:6379/0, or rediss:// for TLS"
    if others := sorted({name for name, _ in parse_qsl(parts.query, keep_blank_values=True)} - OPTIONS):
        return f"must not have {others[0]}; use {', '.join(sorted(OPTIONS))}"
    return "must not contain the password: enter it as the source's secret" if parts.password else ""


def _server(url: str) -> Hashable:
    return server_of(url), urlsplit(url).query  # which has the options of TLS


@dataclass(frozen=True, kw_only=True)
class RedisStreamsSettings(MessageSettings):
    """A stream, and where its entries hold the body."""

    url: str = setting(
        "",
        "Server",
        "Such as redis://redis.example.org:6379/0, or rediss:// for TLS.",
        check=redis_url,
        secret_goes_to=_server,
    )
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
    in_sight = ("url", "stream", "group", "start")
    secret_label = "Password"  # noqa: S105  (a label)
    setup = (
        "Create an ACL user that may use XREADGROUP, XACK, XAUTOCLAIM, XINFO and XGROUP on the key of the stream, and enter its "
        "name in the server's address: redis://user@host:6379/0.",
        "Enter the password as the source's secret.",
        "Give each entry one field with a JSON body, or several fields of text.",
    )
    docs_url = "https://redis.io/docs/latest/develop/data-types/streams/"

    gaps = Gaps(
        are_seen=True,
        how="entries that were trimmed or deleted before they were read are counted, and a stream that was made again or restored is "
        "noticed, with Redis 7, Valkey 7.2 or newer. Redis 6.2 counts no entries: there, only what was delivered and then trimmed is seen.",
    )

    def connect(self, assignment: Assignment[RedisStreamsSettings]) -> Reader:
        return RedisReader(assignment)


class RedisReader(Reader):
    """Reads first the entries that were delivered and not confirmed, then new ones. Of each source, one process reads at a time,
    so all of them are one consumer, and the group has no other."""

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
        self.count = FIRST_COUNT
        self.reason: Reason | None = None  # of a gap before the next batch
        try:
            # The place in another stream, which the settings had named before, is none in this one.
            is_of_other = assignment.marks and self.stream not in assignment.marks
            self._join(None if is_of_other else assignment.position, assignment.marks.get(self.stream))
            self._require_no_other()
        except redis.AuthenticationError:
            raise
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise SourceError(f"The server cannot be reached: {error}", remedy=UNREACHABLE) from None

    def read(self, wait: float) -> Batch:
        if self.unconfirmed_after is not None and (entries := self._entries(self.unconfirmed_after)):
            self.unconfirmed_after = entries[-1][0]
            return self._batch(entries)
        self.unconfirmed_after = None
        if time.monotonic() < self.look_at:
            entries = self._entries(b">", wait)
            return self._batch(entries, state=self._state() if entries else None)
        if claimed := self._claim():
            return self._batch(claimed)
        self.look_at = time.monotonic() + LOOK_EVERY
        self._require_no_other()
        entries = self._entries(b">", 0.01)
        return self._batch(entries, state=self._state(), lag=self._group().get("lag"))

    def confirm(self, batch: Batch) -> None:
        if batch.receipt:
            self.client.xack(self.stream, self.group, *batch.receipt)

    def close(self) -> None:
        self.client.close()

    def _join(self, position: str | None, mark: Mark | None) -> None:
        """Go on in the group, or in a new one behind the last recorded entry; in a stream that was made again, at its beginning."""
        before = self._state()
        stored = mark.note if mark else {}
        self.is_marked = mark is not None
        self.incarnation = mark.incarnation if mark else "1"
        self.suffix: str = stored.get("suffix", "")
        # The place is the last entry that was handed over, and `next` what comes after its number; 0: that is not known.
        self.place = id_of(stored.get("place") or position or "0-0")
        self.next = mark.next if mark else 0
        is_again = self.place > ZERO and (before is None or before.is_another_than(self.place, self.next - 1))
        begin = "0" if is_again else stored.get("place") or position or ("$" if self.settings.start == NEW else "0")
        if self._create_group(begin):
            if is_again:
                self._turn(Reason.RECREATED)
                self.suffix, self.place, self.next = f"~{self.incarnation}", ZERO, 0
            if begin == "0":
                self.next = before.added - before.length + 1 if before and before.added is not None else 0
            elif not self.next:
                self.place = id_of(self._group()["last-delivered-id"])
            return
        group = self._group()
        delivered = id_of(group["last-delivered-id"])
        if delivered < self.place:
            self._turn(Reason.RESTORED)
        if mark is None or delivered < self.place:
            # The server counts only what a group has read that began at an entry; one that has read nothing has all before it.
            read = 0 if delivered == ZERO else group.get("entries-read")
            self.place, self.next = delivered, 0 if read is None else read + 1

    def _turn(self, reason: Reason) -> None:
        self.reason, self.incarnation = reason, str(int(self.incarnation) + 1)

    def _create_group(self, begin: str) -> bool:
        """False: there is one."""
        try:
            self.client.xgroup_create(self.stream, self.group, id=begin, mkstream=True)
        except redis.ResponseError as error:
            if str(error).startswith("BUSYGROUP"):
                return False
            raise SourceError(
                f"The consumer group {self.group} cannot be created: {error}",
                remedy=f"Check that the key {self.stream} is a stream, and that the user may use XGROUP on it.",
            ) from None
        return True

    def _require_no_other(self) -> None:
        """Refuse to read while another consumer exists, which would get a part of the entries. A consumer without a
        request for a minute is gone.
        """
        for consumer in self._consumers():
            if consumer["idle"] < CLAIM_IDLE * 1000:
                raise SourceError(
                    f"The consumer {as_text(consumer['name'])} reads in the group {self.group} as well; it would get a part of the "
                    "entries.",
                    remedy="Give this source a consumer group of its own, or stop the other consumer and wait for a minute.",
                )

    def _consumers(self) -> Sequence[Mapping[str, Any]]:
        """The others of the group."""
        found: Any = self.client.xinfo_consumers(self.stream, self.group)
        return [consumer for consumer in found if as_text(consumer["name"]) != self.consumer]

    def _state(self) -> StreamState | None:
        try:
            info: Any = self.client.xinfo_stream(self.stream)
        except redis.ResponseError as error:
            if "no such key" in str(error) or str(error).startswith("WRONGTYPE"):
                return None
            raise
        return StreamState.of(info)

    def _group(self) -> Mapping[str, Any]:
        groups: Any = self.client.xinfo_groups(self.stream)
        return next((group for group in groups if as_text(group["name"]) == self.group), {})

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

    def _batch(self, entries: Sequence[Entry], *, state: StreamState | None = None, lag: int | None = None) -> Batch:
        messages = [self._message(*entry) for entry in entries]
        size = sum(len(message.body or b"") for message in messages)
        if messages:
            fitting = len(messages) * BATCH_BYTES // max(size, 1)
            self.count = max(min(fitting, self.count * GROWTH, BATCH), 1)
        new = sorted({id for id in map(id_of, (id for id, _ in entries)) if id > self.place})
        spans = self._spans(new, state)
        position = f"{new[-1][0]}-{new[-1][1]}" if new else None
        return Batch(
            messages=messages, position=position, receipt=[id for id, _ in entries] or None, lag=lag, spans=spans
        )

    def _spans(self, new: Sequence[Id], state: StreamState | None) -> Sequence[Span]:
        """Where the stream is read to. Entries that were added and neither delivered nor are still there have been lost."""
        self.place = new[-1] if new else self.place
        began, lost, reason = self.next, 0, self.reason
        if self.next:
            self.next += len(new)
        number = state.number_of(self.place, new) if state else None
        if number is not None and self.next:
            lost = max(number + 1 - self.next, 0)
            others = self._consumers() if lost else []
            if any(consumer["pending"] for consumer in others):  # they come by a claim, or are confirmed
                number, lost = None, 0
            elif others:
                reason = reason or Reason.UNKNOWN
        if number is not None:
            self.next = number + 1
        if not new and self.next == began and self.is_marked and not self.reason:
            return []
        note = {"place": f"{self.place[0]}-{self.place[1]}", "suffix": self.suffix}
        span = Span(
            stream=self.stream,
            incarnation=self.incarnation,
            first=began + lost,
            next=self.next,
            reason=reason,
            note=note,
        )
        begins = [] if self.is_marked else [replace(span, first=began, next=began)]
        self.reason, self.is_marked = None, True
        return [*begins, span]

    def _message(self, id: bytes, fields: Mapping[bytes, bytes] | None) -> Received | Poison:
        name = as_text(id) + self.suffix
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
            time=_time_of(as_text(id)),
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
