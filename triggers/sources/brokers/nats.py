import asyncio
import ssl
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

from triggers.sources.brokers.cloud_event import cloud_event_of
from triggers.sources.brokers.message import UNREACHABLE, MessageSettings, event_of, required
from triggers.sources.continuity import Gaps, Reason, Span
from triggers.sources.kind import Group, register
from triggers.sources.runner import BATCH, BATCH_BYTES, Assignment, Batch, Broker, Poison, Reader, Received, SourceError
from triggers.sources.settings import setting

T = TypeVar("T")

NEW, BEGINNING = "new", "beginning"
CONNECT_TIMEOUT, ANSWER_TIMEOUT = 5, 10  # seconds
LOOK_EVERY = 10.0  # seconds between two looks at the stream
SET_BACK = timedelta(hours=1)  # by which clocks of servers may differ, when a stream was restored
IDLE = 3600.0  # seconds without a read after which the server forgets the consumer
MESSAGE_ID = "Nats-Msg-Id"


def addresses(value: str) -> str:
    for one in value.split(","):
        try:
            parts = urlsplit(one.strip())
            host, _ = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in ("nats", "tls"):
            return "must be addresses such as tls://nats.example.org:4222, or nats:// without TLS"
        if parts.username:
            return "must not contain user and password: enter them as the user name and the source's secret"
    return ""


@dataclass(frozen=True, kw_only=True)
class NatsSettings(MessageSettings):
    """A stream."""

    servers: str = setting(
        "",
        "Servers",
        "Such as tls://nats-1.example.org:4222,tls://nats-2.example.org:4222.",
        check=addresses,
        secret_goes_to=str,
    )
    stream: str = setting("", "Stream", "A stream of JetStream with retention by limits.", check=required)
    subjects: str = setting("", "Subjects", "Only messages of these subjects, such as orders.>. Empty: all.")
    start: str = setting(
        NEW,
        "Start",
        "Where to begin: with new messages, or at the beginning of the stream.",
        choices=(NEW, BEGINNING),
    )
    username: str = setting(
        "", "User name", "Empty: the source's secret, if it has one, is a token.", secret_goes_to=str
    )


@register
class Nats(Broker[NatsSettings]):
    name = "nats"
    label = "NATS JetStream"
    help_text = (
        "Reads a stream; Wakeful stores its place together with the events. The subject of a message is the event's."
    )
    group = Group.BROKERS
    settings_class = NatsSettings
    in_sight = ("servers", "stream", "subjects", "start")
    secret_label = "Password or token"  # noqa: S105  (a label)
    gaps = Gaps(
        are_seen=True,
        how="messages that the stream deleted before they were read are counted, and a stream that was made again or restored is noticed. "
        "With subjects, or a limit of messages per subject, deleted messages cannot be seen.",
    )
    extra = "nats"
    setup = (
        "Let the user look at the stream ($JS.API.STREAM.INFO) and create, read and delete consumers of it ($JS.API.CONSUMER.>).",
        "Enter the servers and the stream; the password or the token is the source's secret.",
        "Let publishers set Nats-Msg-Id: the stream then keeps one of two messages that come within its duplicate window. For later ones, "
        "set “Id in the body”.",
    )
    docs_url = "https://docs.nats.io/nats-concepts/jetstream/streams"

    def connect(self, assignment: Assignment[NatsSettings]) -> Reader:
        return NatsReader(assignment, self.library("nats"))


@dataclass(frozen=True, kw_only=True)
class Place:
    """The last message of a stream that was handed over."""

    created: str  # the stream
    sequence: int  # 0: none
    time: str | None = None  # None: not known


class NatsReader(Reader):
    """Reads behind its own place, by a consumer that lasts as long as the connection. Nothing is acknowledged: the place counts.

    The client's loop runs while one of the methods does.
    """

    def __init__(self, assignment: Assignment[NatsSettings], client: Any) -> None:
        self.client, self.assignment, self.settings = client, assignment, assignment.settings
        self.loop = asyncio.Runner()
        self.connection: Any = client.NATS()
        self.is_new = True  # the place has to be stored
        self.spans: list[Span] = []  # of the next batch
        self.proof: str | None = None  # the time of the message at the place, until it is looked at
        self.policies = client.js.api.DeliverPolicy
        self.consumed = 0  # the consumer's own number of its last message
        self.count = BATCH
        self.look_at = 0.0
        try:
            self._do(self._open())
        except BaseException:
            self.close()
            raise

    def read(self, wait: float) -> Batch:
        return self._do(self._read(wait))

    def stay(self) -> None:
        self._do(asyncio.sleep(0.01))  # the client answers pings

    def close(self) -> None:
        with suppress(Exception):  # it may be broken
            self.loop.run(asyncio.wait_for(self.connection.close(), ANSWER_TIMEOUT))
        self.loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self.loop.run(work)
        except TimeoutError:
            raise SourceError("The server does not answer.", remedy=UNREACHABLE) from None
        except (OSError, self.client.errors.NoServersError) as error:
            said = str(getattr(error, "strerror", None) or error).removeprefix("nats: ")
            raise SourceError(f"The server cannot be reached: {said}.", remedy=UNREACHABLE) from None
        except self.client.errors.Error as error:
            raise SourceError(f"NATS: {str(error).removeprefix('nats: ') or type(error).__name__}") from None

    # In the loop

    async def _open(self) -> None:
        await self.connection.connect(
            [server.strip() for server in self.settings.servers.split(",")],
            name=f"wakeful-{self.assignment.slug}",
            allow_reconnect=False,  # the runner connects again, behind the recorded place
            max_reconnect_attempts=1,  # attempts per server before the client gives up
            reconnect_time_wait=0,
            connect_timeout=CONNECT_TIMEOUT,
            error_cb=_pass_over,
            tls=ssl.create_default_context() if "tls://" in self.settings.servers else None,
            **self._credentials(),
        )
        self.stream = self.connection.jetstream(timeout=ANSWER_TIMEOUT)
        info = await self._info()
        if info.config.retention != self.client.js.api.RetentionPolicy.LIMITS:
            raise SourceError(
                f"The stream {self.settings.stream} deletes messages when they are acknowledged ({info.config.retention}).",
                remedy="Read a stream with retention by limits, such as one whose source is this stream.",
            )
        # With a filter, the messages between two are those of others; with a limit per subject, newer ones have taken their place.
        self.sees_all = not self.settings.subjects and (info.config.max_msgs_per_subject or -1) < 1
        await self._begin(info)

    async def _info(self) -> Any:
        try:
            return await self.stream.stream_info(self.settings.stream)
        except self.client.js.errors.NotFoundError:
            raise SourceError(
                f"The stream {self.settings.stream} does not exist.",
                remedy="Correct its name in the source's settings, or create it.",
            ) from None

    def _credentials(self) -> dict[str, str]:
        if self.settings.username:
            return {"user": self.settings.username, "password": self.assignment.secret}
        return {"token": self.assignment.secret} if self.assignment.secret else {}

    def _stored(self) -> Place | None:
        """The place in this stream; the settings may have named another one before."""
        position, mark = self.assignment.position or {}, self.assignment.marks.get(self.settings.stream)
        if mark:
            return Place(created=mark.incarnation, sequence=mark.next - 1, time=mark.note)
        if position.get("stream") == self.settings.stream:
            return Place(created=position["created"], sequence=position["sequence"])
        return None

    async def _begin(self, info: Any) -> None:
        """Go on behind the stored place. Of a stream that was made again, all messages are new."""
        stored, created = self._stored(), info.created.isoformat()
        beginning = Place(created=created, sequence=max(info.state.first_seq - 1, 0))
        self.place = stored or (
            replace(beginning, sequence=info.state.last_seq) if self.settings.start == NEW else beginning
        )
        if self.settings.stream not in self.assignment.marks:
            self.spans.append(self._span(self.place.sequence))
        if self.place.created != created:
            self.place = beginning
            self.spans.append(self._span(beginning.sequence))
        if info.state.last_seq < self.place.sequence:
            await self._go_back()
            return
        # The last recorded message is read again: it is another one in a stream that was set back and has grown past it.
        self.proof = self.place.time
        first = self.place.sequence if self.proof else self.place.sequence + 1
        await self._consume(deliver_policy=self.policies.BY_START_SEQUENCE, opt_start_seq=first)

    async def _go_back(self) -> None:
        """The stream was restored from a copy: it gives sequences a second time. What it has from about the time of the last recorded
        message on is read again; ids have the time of a message, so that none becomes two events."""
        self.proof, self.is_new = None, True
        begin: dict[str, Any] = {"deliver_policy": self.policies.ALL}
        if self.place.time:
            since = datetime.fromisoformat(self.place.time) - SET_BACK
            begin = {"deliver_policy": self.policies.BY_START_TIME, "opt_start_time": since}
        made = await self._consume(**begin)
        self.place = replace(self.place, sequence=made.delivered.stream_seq, time=None)
        self.spans.append(self._span(self.place.sequence, reason=Reason.RESTORED))

    async def _consume(self, **begin: Any) -> Any:
        api = self.client.js.api
        consumer = await self.stream.add_consumer(
            self.settings.stream,
            api.ConsumerConfig(
                **begin,
                ack_policy=api.AckPolicy.NONE,
                filter_subject=self.settings.subjects or None,
                inactive_threshold=IDLE,
                mem_storage=True,
            ),
        )
        self.subscription = await self.stream.pull_subscribe_bind(consumer=consumer.name, stream=self.settings.stream)
        self.consumed = 0
        return consumer

    async def _read(self, wait: float) -> Batch:
        found = await self._fetch(wait)
        for message in found:
            self._pass(message.metadata)
        lag = await self._look() if time.monotonic() >= self.look_at else None
        spans, self.spans = self.spans, []
        is_news, self.is_new = bool(spans) or self.is_new, False
        position = {"stream": self.settings.stream, "created": self.place.created, "sequence": self.place.sequence}
        messages = [self._message(one) for one in found]
        return Batch(messages=messages, position=position if is_news else None, spans=spans, lag=lag)

    def _pass(self, known: Any) -> None:
        """Go behind a message. What lies between the place and it has been deleted, if that can be seen."""
        before, sequence = self.place.sequence, known.sequence.stream
        self.place = replace(self.place, sequence=sequence, time=known.timestamp.isoformat())
        self.spans.append(self._span(sequence - 1 if self.sees_all else before))

    def _span(self, behind: int, reason: Reason | None = None) -> Span:
        """The span after this sequence up to the place."""
        return Span(
            stream=self.settings.stream,
            incarnation=self.place.created,
            first=behind + 1,
            next=self.place.sequence + 1,
            reason=reason,
            note=self.place.time,
        )

    async def _look(self) -> int:
        """The number of waiting messages. If all after the place were deleted, the place is moved."""
        self.look_at = time.monotonic() + LOOK_EVERY
        info = await self._info()
        if info.created.isoformat() != self.place.created or info.state.last_seq < self.place.sequence:
            raise SourceError("The stream was made again or set back; it is looked at again.")
        waiting: int = (await self.subscription.consumer_info()).num_pending
        deleted = info.state.first_seq - 1
        if self.sees_all and deleted > self.place.sequence and not waiting:
            self.place, self.proof = replace(self.place, sequence=deleted), None
            self.spans.append(self._span(deleted))
        return waiting

    async def _fetch(self, wait: float) -> list[Any]:
        try:
            found = await self.subscription.fetch(self.count, timeout=max(wait, 0.1))
        except TimeoutError:
            await self.connection.flush(ANSWER_TIMEOUT)  # does the server answer at all?
            return []
        except self.client.js.errors.ServiceUnavailableError:  # newer servers: no consumer, perhaps no stream
            await self._info()
            raise SourceError("The server has forgotten how far it was read; it is looked at again.") from None
        for message in found:
            self.consumed += 1
            if message.metadata.sequence.consumer != self.consumed:
                raise SourceError("A message was lost on the way; it is read again.")
        if self.proof:
            first, proof, self.proof = found[0].metadata, self.proof, None
            if first.sequence.stream == self.place.sequence:
                if first.timestamp.isoformat() != proof:
                    await self._go_back()
                    return []
                found = found[1:]
        size = sum(len(message.data) for message in found)
        self.count = max(self.count * BATCH_BYTES // size, 2) if size > BATCH_BYTES else BATCH
        return list(found)

    def _message(self, message: Any) -> Received | Poison:
        headers: Mapping[str, str] = message.headers or {}
        known = message.metadata
        place = f"{known.sequence.stream}@{known.timestamp.isoformat()}"
        # The publisher may give an id a second time, once the stream has forgotten it.
        id = f"{headers[MESSAGE_ID]}#{place}" if MESSAGE_ID in headers else place
        content_type = headers.get("content-type") or headers.get("Content-Type") or ""
        if "ce-specversion" in headers or content_type.startswith("application/cloudevents"):
            return cloud_event_of(
                id=id,
                body=message.data,
                headers=headers,
                content_type=content_type,
                origin=self.settings.stream,
                subject=message.subject,
            )
        return event_of(
            self.settings, id=id, body=message.data, headers=headers, subject=message.subject, time=known.timestamp
        )


async def _pass_over(error: Exception) -> None:
    """Ignore the error, which the failing call raises as well."""
