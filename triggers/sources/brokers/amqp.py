import json
import struct
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import amqp

from triggers.sources.brokers.cloud_event import cloud_event_of
from triggers.sources.brokers.message import UNREACHABLE, MessageSettings, event_of, required
from triggers.sources.continuity import Gaps
from triggers.sources.http.headers import as_text
from triggers.sources.kind import Group, register
from triggers.sources.runner import BATCH, BATCH_BYTES, Assignment, Batch, Broker, Poison, Reader, Received, SourceError
from triggers.sources.settings import server_of, setting

PORTS = {"amqp": 5672, "amqps": 5671}
CONNECT_TIMEOUT, ANSWER_TIMEOUT = 5.0, 8.0  # seconds
HEARTBEAT = 10  # seconds; after two of them without a sign the broker ends the connection and delivers again
LAG_EVERY = 10.0
SILENT = "The broker does not answer."
# RabbitMQ ends a channel whose messages are not confirmed for half an hour: what nothing is done with goes back before.
GIVE_BACK_AFTER = 600.0
CLOUDEVENTS = ("cloudEvents:", "cloudEvents_")
NEW, BODY = "new", "body"
# Errors of the client that decodes a message.
UNREADABLE = (ValueError, OverflowError, struct.error, amqp.exceptions.FrameSyntaxError)


def amqp_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in PORTS:
        return "must be an address such as amqps://user@rabbitmq.example.org/vhost, or amqp:// without TLS"
    return "must not contain the password: enter it as the source's secret" if parts.password else ""


@dataclass(frozen=True, kw_only=True)
class AmqpSettings(MessageSettings):
    """A queue."""

    url: str = setting(
        "",
        "Server",
        "Such as amqps://user@rabbitmq.example.org/vhost; the virtual host is / if there is none.",
        check=amqp_url,
        secret_goes_to=server_of,
    )
    queue: str = setting("", "Queue", "A durable queue that exists, of the type classic or quorum.", check=required)
    subject_header: str = setting("", "Subject header", "Header with the event's subject, such as JMSXGroupID.")
    without_id: str = setting(
        NEW,
        "Without an id",
        "For a message without message-id: “new” takes each delivery for a new event, also one that is repeated after a crash; "
        "“body” takes equal bodies for one event.",
        choices=(NEW, BODY),
    )


@register
class Amqp(Broker[AmqpSettings]):
    name = "amqp"
    label = "AMQP (RabbitMQ)"
    help_text = (
        "Reads a queue of RabbitMQ or another AMQP 0-9-1 broker, and confirms each message after its event is recorded. CloudEvents "
        "are recognised."
    )
    group = Group.BROKERS
    settings_class = AmqpSettings
    in_sight = ("url", "queue")
    secret_label = "Password"  # noqa: S105  (a label)
    setup = (
        "Declare a durable queue that only Wakeful reads, and bind it to the exchange that the events are published to.",
        "Create a user that may read the queue, and enter its name in the server's address.",
        "Let the publisher set message-id: it identifies a message that is delivered again.",
    )
    docs_url = "https://www.rabbitmq.com/docs/queues"

    gaps = Gaps(
        are_seen=False,
        how="a queue does not number its messages. What it drops or expires before it is read (max-length, TTL, a delivery limit, a purge) "
        "leaves no trace; let it dead-letter them.",
    )

    def connect(self, assignment: Assignment[AmqpSettings]) -> Reader:
        return AmqpReader(assignment)


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    """A message that the client cannot decode, so that only its number is known."""

    delivery_tag: int
    reason: str
    body: bytes = b""


class AmqpReader(Reader):
    """The only consumer of its queue: messages that a former owner holds go back into their place before others are read.

    The broker hands out at most BATCH messages that are not confirmed; those beyond a batch wait in `arrived`.
    """

    def __init__(self, assignment: Assignment[AmqpSettings]) -> None:
        self.assignment, self.settings = assignment, assignment.settings
        self.arrived: deque[Any] = deque()
        self.is_open = self.is_lost = False
        self.delivered = 0  # on this channel: the last delivery tag
        self.lag_at = 0.0
        self._open()

    def read(self, wait: float) -> Batch:
        if self.is_lost or not self.is_open:
            self._open()
        self.read_at = time.monotonic()
        self.stay()
        until = self.read_at + wait
        while not self._is_full() and self._drain(max(until - time.monotonic(), 0.01)):
            until = 0.0  # take what has arrived as well, and wait no longer
        taken = [self.arrived.popleft() for _ in range(min(len(self.arrived), BATCH))]
        receipt = taken[-1].delivery_tag if taken else None
        lag = None if self.is_lost else self._lag()
        return Batch(messages=[self._message(one) for one in taken], receipt=receipt, lag=lag)

    def confirm(self, batch: Batch) -> None:
        if self.is_open:  # else its messages went back, and come again
            self.channel.basic_ack(batch.receipt, multiple=True)

    def stay(self) -> None:
        if not self.is_open or self.is_lost:
            return
        if self.arrived and time.monotonic() - self.read_at > GIVE_BACK_AFTER:
            self.close()
        elif self._is_full():  # the broker's heartbeats stand behind its messages
            self.connection.send_heartbeat()
        else:
            self._drain(0.01)
            self.connection.heartbeat_tick()

    def close(self) -> None:
        """The broker takes back what is not confirmed."""
        self.is_open = False
        with suppress(Exception):  # the connection may be broken
            self.connection.close()
        self.connection.collect()

    def _open(self) -> None:
        if self.is_open:
            self.close()
        self.arrived.clear()
        self.delivered, self.is_lost, self.read_at = 0, False, time.monotonic()
        self.connection = _connection(self.assignment)
        try:
            self.connection.connect()
            self.is_open = True
            self.channel = self.connection.channel()
            self._require_no_other()
            self.channel.basic_qos(0, BATCH, False)
            self.channel.basic_consume(self.settings.queue, callback=self._arrive)
        except BaseException as error:
            self.close()
            if isinstance(error, TimeoutError):
                raise SourceError(SILENT, remedy=UNREACHABLE) from None
            if isinstance(error, OSError):
                said = error.strerror or error
                raise SourceError(f"The broker cannot be reached: {said}.", remedy=UNREACHABLE) from None
            if isinstance(error, amqp.NotFound):
                raise SourceError(
                    f"The queue {self.settings.queue} does not exist.",
                    remedy="Declare it at the broker, durable, or correct its name in the source's settings.",
                ) from None
            if isinstance(error, amqp.AccessRefused):
                raise SourceError(
                    f"The broker refuses access: {error.reply_text}",
                    remedy="Check the user, the password, the virtual host and the permissions.",
                ) from None
            raise

    def _require_no_other(self) -> None:
        """Quorum queues know no exclusive consumers, so the broker cannot refuse a second one."""
        if self._declared().consumer_count:
            raise SourceError(
                f"Another consumer reads the queue {self.settings.queue}; each would get a part of the messages.",
                remedy="After a crash the broker ends the former connection within half a minute. Otherwise stop the other "
                "consumer, or bind a queue of its own to the exchange.",
            )

    def _declared(self) -> Any:
        return self.channel.queue_declare(self.settings.queue, passive=True)

    def _arrive(self, message: Any) -> None:
        self.delivered += 1
        self.arrived.append(message)

    def _is_full(self) -> bool:
        return len(self.arrived) >= BATCH or sum(len(message.body) for message in self.arrived) > BATCH_BYTES

    def _drain(self, wait: float) -> bool:
        """Read the messages that have arrived; return whether more may follow."""
        before = self.delivered
        try:
            self.connection.drain_events(timeout=wait)
        except TimeoutError:
            return False
        except UNREADABLE as error:
            # The client has lost its place on the connection. The message can still be confirmed: tags are numbers in turn.
            self.is_lost = True
            self.arrived.append(Unreadable(delivery_tag=self.delivered + 1, reason=f"it is not readable: {error}"))
        return self.delivered > before

    def _lag(self) -> int | None:
        if time.monotonic() < self.lag_at:
            return None
        self.lag_at = time.monotonic() + LAG_EVERY
        try:
            return int(self._declared().message_count) + len(self.arrived)
        except TimeoutError:
            raise SourceError(SILENT, remedy=UNREACHABLE) from None

    def _message(self, message: Any) -> Received | Poison:
        if isinstance(message, Unreadable):
            return Poison(id=str(uuid4()), reason=message.reason)
        return event_in(message, self.settings)


def event_in(message: Any, settings: AmqpSettings) -> Received | Poison:
    """The event in a message of the client."""
    properties: Mapping[str, Any] = message.properties
    headers = {_text(name): _text(value) for name, value in (properties.get("application_headers") or {}).items()}
    body = message.body if isinstance(message.body, bytes) else message.body.encode(errors="replace")
    content_type = str(properties.get("content_type") or "")
    subject = headers.get(settings.subject_header, "")
    id = str(properties.get("message_id") or "") or _stand_in(settings, body)
    if content_type.startswith("application/cloudevents") or any(name.startswith(CLOUDEVENTS) for name in headers):
        return cloud_event_of(
            id=id, body=body, headers=headers, content_type=content_type, origin=settings.queue, subject=subject
        )
    if properties.get("type"):
        headers["type"] = str(properties["type"])
    settings = replace(settings, type_header=settings.type_header or "type")
    time = _time_of(properties.get("timestamp"))
    return event_of(settings, id=id, body=body, headers=headers, subject=subject, time=time)


def _connection(assignment: Assignment[AmqpSettings]) -> Any:
    parts = urlsplit(assignment.settings.url)
    host = parts.hostname or ""
    address = f"[{host}]" if ":" in host else host
    return amqp.Connection(
        f"{address}:{parts.port or PORTS[parts.scheme]}",
        userid=unquote(parts.username or "guest"),
        password=assignment.secret or "guest",
        virtual_host=unquote(parts.path.removeprefix("/")) or "/",
        ssl={"server_hostname": host} if parts.scheme == "amqps" else False,  # with a name, it is checked
        connect_timeout=CONNECT_TIMEOUT,
        read_timeout=ANSWER_TIMEOUT,
        write_timeout=ANSWER_TIMEOUT,
        heartbeat=HEARTBEAT,
        client_properties={"connection_name": f"wakeful-{assignment.slug}"},
    )


def _stand_in(settings: AmqpSettings, body: bytes) -> str:
    return str(uuid4()) if settings.without_id == NEW else f"sha256:{sha256(body).hexdigest()}"


def _text(value: Any) -> str:
    """A header as text; tables and lists, such as x-death, as JSON."""
    if isinstance(value, bytes):
        return as_text(value)
    if isinstance(value, dict | list):
        return json.dumps(value, default=_text, skipkeys=True, ensure_ascii=False)
    return str(value)


def _time_of(value: Any) -> datetime | None:
    """Whole seconds, by AMQP; some senders put milliseconds there."""
    try:
        seconds = int(value)
        return datetime.fromtimestamp(seconds / 1000 if seconds > 10**11 else seconds, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
