import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from triggers.sources.brokers.cloud_event import cloud_event_of
from triggers.sources.brokers.debezium import Skip, change_of
from triggers.sources.brokers.message import UNREACHABLE, MessageSettings, event_of, required
from triggers.sources.http.headers import as_text
from triggers.sources.kind import Group, register
from triggers.sources.runner import BATCH, Assignment, Batch, Broker, Poison, Reader, Received, SourceError
from triggers.sources.settings import setting

JSON, CLOUDEVENTS, DEBEZIUM = "json", "cloudevents", "debezium"
NEW, BEGINNING = "new", "beginning"
ANSWER_TIMEOUT = 10.0  # seconds
PARTITIONS_EVERY = 60.0  # seconds between two looks for new partitions
LAG_EVERY = 10.0
CLIENT = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # What was deleted before it was read is not passed over in silence.
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
    "isolation.level": "read_committed",
    "queued.max.messages.kbytes": 16 * 1024,
    "reconnect.backoff.max.ms": 5000,
}
Position = dict[str, dict[str, int]]  # topic → partition → the next offset


@dataclass(frozen=True, kw_only=True)
class KafkaSettings(MessageSettings):
    """Topics, and the format of their messages."""

    servers: str = setting(
        "", "Servers", "Bootstrap servers, such as kafka-1.example.org:9092,kafka-2.example.org:9092.", check=required
    )
    topics: str = setting("", "Topics", "Names, separated by commas.", check=required)
    format: str = setting(
        JSON,
        "Format",
        "json: any body. cloudevents: the Kafka binding of CloudEvents 1.0, structured or binary. debezium: change events.",
        choices=(JSON, CLOUDEVENTS, DEBEZIUM),
    )
    snapshots: bool = setting(
        False,
        "Snapshot rows",
        "Turn on to take also the rows that Debezium reads in a snapshot: each is an event.",
    )
    start: str = setting(
        NEW,
        "Start",
        "Where to begin: with new messages, or at the beginning of each partition.",
        choices=(NEW, BEGINNING),
    )
    group: str = setting(
        "",
        "Consumer group",
        "Empty: wakeful-<slug>. Progress is committed to it, for Kafka's own tools. If it has committed offsets before the source "
        "is first read, reading begins there.",
    )
    protocol: str = setting(
        "PLAINTEXT", "Security protocol", choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    )
    mechanism: str = setting(
        "PLAIN", "SASL mechanism", "With a SASL protocol.", choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    )
    username: str = setting("", "User name", "With a SASL protocol; the secret of the source is the password.")


@register
class Kafka(Broker[KafkaSettings]):
    name = "kafka"
    label = "Apache Kafka"
    help_text = (
        "Reads all partitions of topics; Wakeful stores the offsets together with the events. The key of a message is the event's "
        "subject."
    )
    group = Group.BROKERS
    settings_class = KafkaSettings
    secret_label = "Password"  # noqa: S105  (a label)
    extra = "kafka"
    setup = (
        "Let the user read and describe the topics, and read the consumer group.",
        "Enter the servers and the topics; with a SASL protocol also the user, and the password as the source's secret.",
        "For Debezium, choose its format: the type of an event is db.schema.table.insert, .update or .delete.",
    )
    docs_url = "https://kafka.apache.org/documentation/#consumerconfigs"

    def connect(self, assignment: Assignment[KafkaSettings]) -> Reader:
        return KafkaReader(assignment, self.library("confluent_kafka"))


class KafkaReader(Reader):
    """The lease says who reads, so no group is joined: a successor need not wait for a rebalance."""

    def __init__(self, assignment: Assignment[KafkaSettings], client: Any) -> None:
        self.client, self.settings = client, assignment.settings
        self.topics = [topic.strip() for topic in self.settings.topics.split(",") if topic.strip()]
        self.position: Position = {topic: dict(offsets) for topic, offsets in (assignment.position or {}).items()}
        self.is_first = not self.position
        self.event_of = _reading(self.settings)
        self.trouble: SourceError | None = None
        self.partitions_at = self.lag_at = 0.0
        self.consumer = client.Consumer(self._configuration(assignment), logger=None)
        try:
            self._assign()
        except client.KafkaException as error:
            self.close()
            raise self._trouble(error.args[0]) from None
        except BaseException:
            self.close()
            raise

    def read(self, wait: float) -> Batch:
        if time.monotonic() >= self.partitions_at:
            self._assign()
        found = self._poll(wait)
        messages = [message for raw in found if (message := self._take(raw)) is not None]
        if not found and self.trouble:
            raise self.trouble
        lag = self._lag()
        # A copy: a later read that fails must not move the position of this batch.
        position = {topic: dict(offsets) for topic, offsets in self.position.items()}
        is_news, self.is_first = bool(found) or self.is_first, False
        return Batch(messages=messages, position=position if is_news else None, receipt=bool(found) or None, lag=lag)

    def confirm(self, batch: Batch) -> None:
        offsets = [self._partition(topic, number) for topic in batch.position for number in batch.position[topic]]
        with suppress(self.client.KafkaException):  # for Kafka's own tools alone: the offsets that count are ours
            self.consumer.commit(offsets=offsets, asynchronous=True)

    def close(self) -> None:
        self.consumer.close()

    def _configuration(self, assignment: Assignment[KafkaSettings]) -> dict[str, Any]:
        chosen: dict[str, Any] = {
            **CLIENT,
            "bootstrap.servers": self.settings.servers,
            "group.id": self.settings.group or f"wakeful-{assignment.slug}",
            "client.id": f"wakeful-{assignment.slug}",
            "security.protocol": self.settings.protocol,
            "error_cb": self._note,
        }
        if self.settings.protocol.startswith("SASL"):
            chosen |= {
                "sasl.mechanism": self.settings.mechanism,
                "sasl.username": self.settings.username,
                "sasl.password": assignment.secret,
            }
        return chosen

    def _note(self, error: Any) -> None:
        """Called by the client while it polls."""
        if (
            error.code() in (self.client.KafkaError._ALL_BROKERS_DOWN, self.client.KafkaError._AUTHENTICATION)
            or error.fatal()
        ):
            self.trouble = self._trouble(error)

    def _assign(self) -> None:
        """Read all partitions, each from its next offset."""
        known = {topic: self._partitions_of(topic) for topic in self.topics}
        new = [
            (topic, number)
            for topic in known
            for number in known[topic]
            if str(number) not in self.position.get(topic, {})
        ]
        for one in self._beginnings(new) if new else []:
            self.position.setdefault(one.topic, {})[str(one.partition)] = one.offset
        if new or not self.partitions_at:
            self.consumer.assign([self._partition(topic, str(number)) for topic in known for number in known[topic]])
        self.partitions_at = time.monotonic() + PARTITIONS_EVERY

    def _partitions_of(self, topic: str) -> list[int]:
        found = self.consumer.list_topics(topic, timeout=ANSWER_TIMEOUT).topics[topic]
        if found.error is not None or not found.partitions:
            raise SourceError(
                f"The topic {topic} cannot be read: {found.error or 'it has no partitions'}.",
                remedy="Correct the name of the topic in the source's settings, or create it, and let the user read it.",
            )
        return sorted(found.partitions)

    def _beginnings(self, new: list[tuple[str, int]]) -> list[Any]:
        """Where to begin partitions that were not read yet: where the group stands, else by the settings. A partition that was
        added later is read from its beginning."""
        asked = [self.client.TopicPartition(topic, number) for topic, number in new]
        stands = self.consumer.committed(asked, timeout=ANSWER_TIMEOUT) if self.is_first else asked
        return [one if one.offset >= 0 else self._edge(one) for one in stands]

    def _edge(self, partition: Any) -> Any:
        low, high = self.consumer.get_watermark_offsets(partition, timeout=ANSWER_TIMEOUT, cached=False)
        begins_new = self.settings.start == NEW and self.is_first
        return self.client.TopicPartition(partition.topic, partition.partition, high if begins_new else low)

    def _partition(self, topic: str, number: str) -> Any:
        return self.client.TopicPartition(topic, int(number), self.position[topic][number])

    def _poll(self, wait: float) -> list[Any]:
        first = self.consumer.poll(wait)
        return [] if first is None else [first, *self.consumer.consume(BATCH - 1, timeout=0)]

    def _take(self, raw: Any) -> Received | Poison | None:
        if error := raw.error():
            if error.code() == self.client.KafkaError._AUTO_OFFSET_RESET:
                return self._gap(raw)
            self._fail(error)
            return None
        self.trouble = None
        self.position.setdefault(raw.topic(), {})[str(raw.partition())] = raw.offset() + 1
        return self.event_of(raw)

    def _fail(self, error: Any) -> None:
        if not error.retriable():
            raise self._trouble(error)
        self.trouble = self._trouble(error)

    def _gap(self, raw: Any) -> Poison:
        """Kafka deleted messages that were not read yet, or the topic itself; go on with the oldest that it has."""
        topic, number = raw.topic(), str(raw.partition())
        wanted = self.position[topic][number]
        low, high = self.consumer.get_watermark_offsets(
            self.client.TopicPartition(topic, int(number)), timeout=ANSWER_TIMEOUT, cached=False
        )
        self.position[topic][number] = low
        self.consumer.seek(self._partition(topic, number))
        lost = f"messages {wanted:,} to {low - 1:,} were deleted before they were read"
        again = f"the topic was created again: it ends at {high:,}, and {wanted:,} was to be read next"
        reason = again if wanted > high else lost
        return Poison(id=f"{topic}/{number}/{wanted}-{low}", reason=f"Gap in partition {number} of {topic}: {reason}")

    def _lag(self) -> int | None:
        """From what the client knows, without asking the servers."""
        if time.monotonic() < self.lag_at:
            return None
        self.lag_at = time.monotonic() + LAG_EVERY
        lag = 0
        for topic, offsets in self.position.items():
            for number, offset in offsets.items():
                partition = self.client.TopicPartition(topic, int(number))
                _, high = self.consumer.get_watermark_offsets(partition, cached=True)
                lag += max(high - offset, 0)
        return lag

    def _trouble(self, error: Any) -> SourceError:
        codes = self.client.KafkaError
        is_away = error.code() in (codes._ALL_BROKERS_DOWN, codes._TRANSPORT, codes._RESOLVE, codes._TIMED_OUT)
        said = f"Kafka says: {error.str() or error.name()}."
        return SourceError(said, remedy=UNREACHABLE if is_away else "")


def _reading(settings: KafkaSettings) -> Callable[[Any], Received | Poison | None]:
    """How to make an event of a message."""

    def read(raw: Any) -> Received | Poison | None:
        headers = {name: as_text(value or b"") for name, value in raw.headers() or ()}
        key, body = raw.key() or b"", raw.value() or b""
        id, origin, subject = _identity(raw), f"kafka:{raw.topic()}", as_text(key)
        match settings.format:
            case "cloudevents":
                content_type = _content_type(headers)
                return cloud_event_of(
                    id=id, body=body, headers=headers, content_type=content_type, origin=origin, subject=subject
                )
            case "debezium":
                change = change_of(
                    id=id, key=key, body=body, headers=headers, origin=origin, snapshots=settings.snapshots
                )
                return None if isinstance(change, Skip) else change
        return event_of(settings, id=id, body=body, headers=headers, origin=origin, subject=subject, time=_time_of(raw))

    return read


def _identity(raw: Any) -> str:
    """Topic, partition and offset; with the time of the message, because a topic that is deleted and created again gives its
    offsets a second time."""
    kind, milliseconds = raw.timestamp()
    return f"{raw.topic()}/{raw.partition()}/{raw.offset()}" + (f"@{milliseconds}" if kind else "")


def _time_of(raw: Any) -> datetime | None:
    kind, milliseconds = raw.timestamp()
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC) if kind else None
    except (ValueError, OverflowError, OSError):
        return None


def _content_type(headers: Mapping[str, str]) -> str:
    return next((value for name, value in headers.items() if name.lower() == "content-type"), "")
