import asyncio
import ssl
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from triggers.sources.brokers.cloud_event import cloud_event_of
from triggers.sources.brokers.message import UNREACHABLE, MessageSettings, event_of, required
from triggers.sources.kind import Group, register
from triggers.sources.runner import BATCH, BATCH_BYTES, Assignment, Batch, Broker, Poison, Reader, Received, SourceError
from triggers.sources.settings import setting

T = TypeVar("T")

NEW, BEGINNING = "new", "beginning"
CONNECT_TIMEOUT, ANSWER_TIMEOUT = 5, 10  # seconds
LOOK_EVERY = 10.0  # seconds between two looks at the stream
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
    )
    stream: str = setting("", "Stream", "A stream of JetStream with retention by limits.", check=required)
    subjects: str = setting("", "Subjects", "Only messages of these subjects, such as orders.>. Empty: all.")
    start: str = setting(
        NEW,
        "Start",
        "Where to begin: with new messages, or at the beginning of the stream.",
        choices=(NEW, BEGINNING),
    )
    username: str = setting("", "User name", "Empty: the source's secret, if it has one, is a token.")


@register
class Nats(Broker[NatsSettings]):
    name = "nats"
    label = "NATS JetStream"
    help_text = (
        "Reads a stream; Wakeful stores its place together with the events. The subject of a message is the event's."
    )
    group = Group.BROKERS
    settings_class = NatsSettings
    secret_label = "Password or token"  # noqa: S105  (a label)
    extra = "nats"
    setup = (
        "Let the user look at the stream ($JS.API.STREAM.INFO) and create, read and delete consumers of it ($JS.API.CONSUMER.>).",
        "Enter the servers and the stream; the password or the token is the source's secret.",
        "Let publishers set Nats-Msg-Id: two messages with one id are one event.",
    )
    docs_url = "https://docs.nats.io/nats-concepts/jetstream/streams"

    def connect(self, assignment: Assignment[NatsSettings]) -> Reader:
        return NatsReader(assignment, self.library("nats"))


class NatsReader(Reader):
    """Reads behind its own place, by a consumer that lasts as long as the connection. Nothing is acknowledged: the place counts.

    The client's loop runs while one of the methods does.
    """

    def __init__(self, assignment: Assignment[NatsSettings], client: Any) -> None:
        self.client, self.assignment, self.settings = client, assignment, assignment.settings
        self.loop = asyncio.Runner()
        self.connection: Any = client.NATS()
        self.place: dict[str, Any] = assignment.position or {}
        self.is_new = True  # the place has to be stored
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
            max_reconnect_attempts=1,  # of each server, before it says that none is there
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
        self.place = self._place_in(info)
        await self._consume()

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

    def _place_in(self, info: Any) -> dict[str, Any]:
        made = {"stream": self.settings.stream, "created": info.created.isoformat()}
        if made.items() <= self.place.items():
            return self.place
        # Of a stream that was made again, all messages are new.
        is_again = self.place.get("stream") == self.settings.stream
        begins_new = self.settings.start == NEW and not is_again
        return {**made, "sequence": info.state.last_seq if begins_new else 0}

    async def _consume(self) -> None:
        api = self.client.js.api
        consumer = await self.stream.add_consumer(
            self.settings.stream,
            api.ConsumerConfig(
                deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=self.place["sequence"] + 1,
                ack_policy=api.AckPolicy.NONE,
                filter_subject=self.settings.subjects or None,
                inactive_threshold=IDLE,
                mem_storage=True,
            ),
        )
        self.subscription = await self.stream.pull_subscribe_bind(consumer=consumer.name, stream=self.settings.stream)

    async def _read(self, wait: float) -> Batch:
        gap, lag = await self._look() if time.monotonic() >= self.look_at else ([], None)
        found = await self._fetch(wait)
        messages = [self._message(one) for one in found]
        if found:
            self.place = {**self.place, "sequence": found[-1].metadata.sequence.stream}
        is_news, self.is_new = bool(messages or gap) or self.is_new, False
        return Batch(messages=[*gap, *messages], position=self.place if is_news else None, lag=lag)

    async def _look(self) -> tuple[Sequence[Poison], int]:
        """Messages that were deleted before they were read, and how many wait."""
        self.look_at = time.monotonic() + LOOK_EVERY
        info = await self._info()
        consumer = await self.subscription.consumer_info()
        oldest = info.state.first_seq
        # With a filter, what the stream deletes may be messages of others.
        if self.settings.subjects or not 0 < self.place["sequence"] < oldest - 1:
            return [], consumer.num_pending
        first, last = self.place["sequence"] + 1, oldest - 1
        self.place = {**self.place, "sequence": last}
        reason = f"the stream deleted the messages {first:,} to {last:,} before they were read"
        return [Poison(id=f"deleted:{self.place['created']}:{first}-{last}", reason=reason)], consumer.num_pending

    async def _fetch(self, wait: float) -> list[Any]:
        try:
            found = await self.subscription.fetch(self.count, timeout=max(wait, 0.1))
        except TimeoutError:
            await self.connection.flush(ANSWER_TIMEOUT)  # does the server answer at all?
            return []
        for message in found:
            self.consumed += 1
            if message.metadata.sequence.consumer != self.consumed:
                raise SourceError("A message was lost on the way; it is read again.")
        size = sum(len(message.data) for message in found)
        self.count = max(self.count * BATCH_BYTES // size, 2) if size > BATCH_BYTES else BATCH
        return list(found)

    def _message(self, message: Any) -> Received | Poison:
        headers: Mapping[str, str] = message.headers or {}
        known = message.metadata
        id = headers.get(MESSAGE_ID) or f"{known.sequence.stream}@{known.timestamp.isoformat()}"
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
    """The call that fails says so as well."""
