import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from triggers.sources.brokers.cloud_event import cloud_event_of
from triggers.sources.brokers.debezium import Skip, change_of
from triggers.sources.brokers.kafka_topics import TopicId, ids_of
from triggers.sources.brokers.message import UNREACHABLE, MessageSettings, event_of, required
from triggers.sources.continuity import Gaps, Mark, Reason, Span
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
SET_BACK = 3_600_000  # milliseconds by which clocks may differ, when a topic has lost its end
Position = dict[str, dict[str, int]]  # topic → partition → the next offset
Partition = tuple[str, str]  # topic, number


@dataclass(frozen=True, kw_only=True)
class KafkaSettings(MessageSettings):
    """Topics, and the format of their messages."""

    servers: str = setting(
        "",
        "Servers",
        "Bootstrap servers, such as kafka-1.example.org:9092,kafka-2.example.org:9092.",
        check=required,
        secret_goes_to=str,
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
        "PLAINTEXT", "Security protocol", choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), secret_goes_to=str
    )
    mechanism: str = setting(
        "PLAIN",
        "SASL mechanism",
        "With a SASL protocol.",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        secret_goes_to=str,
    )
    username: str = setting(
        "", "User name", "With a SASL protocol; the secret of the source is the password.", secret_goes_to=str
    )


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
    gaps = Gaps(
        are_seen=True,
        how="messages that were deleted before they were read are counted. A topic that was made again, or has lost its end, is noticed by "
        "its id, or by the last recorded message, which is read again at each connection.",
    )
    extra = "kafka"
    setup = (
        "Let the user read and describe the topics, and read the consumer group.",
        "Enter the servers and the topics; with a SASL protocol also the user, and the password as the source's secret.",
        "For Debezium, choose its format: the type of an event is db.schema.table.insert, .update or .delete.",
    )
    docs_url = "https://kafka.apache.org/documentation/#consumerconfigs"

    def connect(self, assignment: Assignment[KafkaSettings]) -> Reader:
        client = self.library("confluent_kafka")
        self.library("confluent_kafka.admin")
        return KafkaReader(assignment, client)


class KafkaReader(Reader):
    """A reader that joins no consumer group, because Wakeful's lease decides who reads: a successor need not wait for a
    rebalance.
    """

    def __init__(self, assignment: Assignment[KafkaSettings], client: Any) -> None:
        self.client, self.settings = client, assignment.settings
        self.topics = [topic.strip() for topic in self.settings.topics.split(",") if topic.strip()]
        self.position: Position = {topic: dict(offsets) for topic, offsets in (assignment.position or {}).items()}
        self.marks = dict(assignment.marks)
        self.spans: list[Span] = []  # of the next batch
        self.proofs: dict[Partition, int] = {}  # milliseconds of the last recorded message, until it is looked at
        self.topic_ids: dict[str, TopicId] = {}
        self.is_first = not self.position
        self.event_of = _reading(self.settings)
        self.trouble: SourceError | None = None
        self.partitions_at = self.lag_at = 0.0
        self.assigned: list[Partition] = []
        self.admin: Any = None
        self.configuration = self._configuration(assignment)
        group = {"group.id": self.settings.group or f"wakeful-{assignment.slug}"}
        self.consumer = client.Consumer({**CLIENT, **self.configuration, **group}, logger=None)
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
        messages = self._take_all(found)
        if not found and self.trouble:
            raise self.trouble
        lag = self._lag()
        # A copy: a later read that fails must not move the position of this batch.
        position = {topic: dict(offsets) for topic, offsets in self.position.items()}
        is_news, self.is_first = bool(found or self.spans) or self.is_first, False
        spans, self.spans = self.spans, []
        receipt = bool(found) or None
        return Batch(messages=messages, position=position if is_news else None, receipt=receipt, lag=lag, spans=spans)

    def confirm(self, batch: Batch) -> None:
        offsets = [self._partition(topic, number) for topic in batch.position for number in batch.position[topic]]
        with suppress(self.client.KafkaException):  # for Kafka's own tools alone: the offsets that count are ours
            self.consumer.commit(offsets=offsets, asynchronous=True)

    def close(self) -> None:
        self.consumer.close()

    def _configuration(self, assignment: Assignment[KafkaSettings]) -> dict[str, Any]:
        chosen: dict[str, Any] = {
            "bootstrap.servers": self.settings.servers,
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
        """Read all partitions, each from its next offset; those of a topic that was made again from their beginning."""
        known = {topic: self._partitions_of(topic) for topic in self.topics}
        again = [topic for topic in self.topics if self._is_another(topic)]
        new = [
            (topic, number)
            for topic in known
            for number in known[topic]
            if topic not in again and str(number) not in self.position.get(topic, {})
        ]
        begun = set(self.position)
        for one in self._beginnings(new, begun) if new else []:
            self.position.setdefault(one.topic, {})[str(one.partition)] = one.offset
        for topic in again:
            self.position[topic] = {}
            for number in known[topic]:
                self._move(topic, str(number), self._edges(topic, number)[0])
        for topic in known:
            for number in known[topic]:
                self._mark(topic, str(number))
        if new or again or not self.partitions_at:
            self.assigned = [(topic, str(number)) for topic in known for number in known[topic]]
            self._fetch()
        self.partitions_at = time.monotonic() + PARTITIONS_EVERY

    def _fetch(self) -> None:
        """Each partition from its next offset; what the client has fetched before is dropped."""
        self.consumer.assign([self._next(topic, number) for topic, number in self.assigned])

    def _partitions_of(self, topic: str) -> list[int]:
        metadata = self.consumer.list_topics(topic, timeout=ANSWER_TIMEOUT)
        found = metadata.topics[topic]
        if found.error is not None or not found.partitions:
            raise SourceError(
                f"The topic {topic} cannot be read: {found.error or 'it has no partitions'}.",
                remedy="Correct the name of the topic in the source's settings, or create it, and let the user read it.",
            )
        ids = self._ids(topic) if self._has_controller(metadata) else {}
        self.topic_ids[topic] = TopicId(cluster=metadata.cluster_id or "", topic=ids.get(topic, ""))
        return sorted(found.partitions)

    def _has_controller(self, metadata: Any) -> bool:
        """Whether the cluster has a controller: without one the client would block on a request for ids."""
        return metadata.controller_id in metadata.brokers

    def _ids(self, topic: str) -> Mapping[str, str]:
        if self.admin is None:
            self.admin = self.client.admin.AdminClient(self.configuration, logger=None)
        return ids_of(self.client, self.admin, [topic], timeout=ANSWER_TIMEOUT)

    def _is_another(self, topic: str) -> bool:
        """Than the one whose offsets are stored."""
        stored = (self.marks.get(f"{topic}/{number}") for number in self.position.get(topic, {}))
        return any(mark and self.topic_ids[topic].is_another_than(TopicId.load(mark.note["id"])) for mark in stored)

    def _mark(self, topic: str, number: str) -> None:
        """The mark of a partition; the beginning of the partition if it has none."""
        mark = self.marks.get(f"{topic}/{number}")
        if mark is None:
            self._move(topic, number, self.position[topic][number])
        elif not self.partitions_at and mark.note["at"] is not None:
            self.proofs[topic, number] = mark.note["at"]

    def _move(
        self, topic: str, number: str, first: int, *, by: int = 0, at: int | None = None, reason: Reason | None = None
    ) -> None:
        """Read from here, or behind so many messages; `at` is the time of the last one."""
        stream, known = f"{topic}/{number}", self.topic_ids[topic]
        stored = self.marks.get(stream)
        before = TopicId.load(stored.note["id"]) if stored else known
        is_another = known.is_another_than(before)
        if not is_another:  # what was known once is kept
            known = TopicId(cluster=known.cluster or before.cluster, topic=known.topic or before.topic)
        incarnation = str(known) if stored is None or is_another else stored.incarnation
        note = {"at": at, "id": known.dump()}
        self.marks[stream] = Mark(next=first + by, incarnation=incarnation, note=note)
        self.position.setdefault(topic, {})[number] = first + by
        self.spans.append(
            Span(stream=stream, first=first, next=first + by, incarnation=incarnation, reason=reason, note=note)
        )

    def _beginnings(self, new: list[tuple[str, int]], begun: Collection[str]) -> list[Any]:
        """Where to begin partitions that were not read yet: where the group stands, else by the settings. A partition that was
        added to a topic later is read from its beginning."""
        asked = [self.client.TopicPartition(topic, number) for topic, number in new if topic not in begun]
        stands = self.consumer.committed(asked, timeout=ANSWER_TIMEOUT) if asked else []
        added = [self.client.TopicPartition(topic, number) for topic, number in new if topic in begun]
        is_new = self.settings.start == NEW
        return [
            *(one if one.offset >= 0 else self._edge(one, is_new=is_new) for one in stands),
            *(self._edge(one, is_new=False) for one in added),
        ]

    def _edge(self, partition: Any, *, is_new: bool) -> Any:
        low, high = self._edges(partition.topic, partition.partition)
        return self.client.TopicPartition(partition.topic, partition.partition, high if is_new else low)

    def _edges(self, topic: str, number: int) -> tuple[int, int]:
        asked = self.client.TopicPartition(topic, number)
        low, high = self.consumer.get_watermark_offsets(asked, timeout=ANSWER_TIMEOUT, cached=False)
        return low, high

    def _partition(self, topic: str, number: str) -> Any:
        return self.client.TopicPartition(topic, int(number), self.position[topic][number])

    def _next(self, topic: str, number: str) -> Any:
        """Where to fetch. The last recorded message comes once more: it is another one if offsets were given a second time."""
        offset = self.position[topic][number] - ((topic, number) in self.proofs)
        return self.client.TopicPartition(topic, int(number), offset)

    def _poll(self, wait: float) -> list[Any]:
        first = self.consumer.poll(wait)
        return [] if first is None else [first, *self.consumer.consume(BATCH - 1, timeout=0)]

    def _take_all(self, found: Sequence[Any]) -> list[Received | Poison]:
        messages, moved = [], set[Partition]()
        for raw in found:
            partition = raw.topic(), str(raw.partition())
            if partition in moved:
                continue  # it is read from another place
            error = raw.error()
            if error and error.code() == self.client.KafkaError._AUTO_OFFSET_RESET:
                self._gap(*partition)
                moved.add(partition)
            elif error:
                self._fail(error)
            elif self._is_set_back(raw):
                self._go_back(*partition)
                moved.add(partition)
            elif message := self._take(raw):
                messages.append(message)
        if moved:
            self._fetch()
        return messages

    def _is_set_back(self, raw: Any) -> bool:
        """Whether the last recorded message has been replaced by another one."""
        topic, number = raw.topic(), str(raw.partition())
        proof = self.proofs.get((topic, number))
        return proof is not None and raw.offset() == self.position[topic][number] - 1 and raw.timestamp()[1] != proof

    def _take(self, raw: Any) -> Received | Poison | None:
        topic, number = raw.topic(), str(raw.partition())
        self.trouble = None
        self.proofs.pop((topic, number), None)
        offset, first = raw.offset(), self.position[topic][number]
        if offset < first:
            return None  # the last recorded message
        kind, milliseconds = raw.timestamp()
        # Offsets without a message are those of transactions and of compaction.
        self._move(topic, number, first, by=offset + 1 - first, at=milliseconds if kind else None)
        return self.event_of(raw)

    def _fail(self, error: Any) -> None:
        if not error.retriable():
            raise self._trouble(error)
        self.trouble = self._trouble(error)

    def _gap(self, topic: str, number: str) -> None:
        """Kafka has not got what was to be read: go on with the oldest that it has."""
        self.proofs.pop((topic, number), None)
        wanted = self.position[topic][number]
        low, high = self._edges(topic, int(number))
        if not low <= wanted <= high:
            self._move(topic, number, low, reason=Reason.RESTORED if wanted > high else None)

    def _go_back(self, topic: str, number: str) -> None:
        """The topic was made again or has lost its end, and has grown past the place since. Ids have the time of a message, so that
        what is read twice is one event."""
        at = self.proofs.pop((topic, number))
        low, high = self._edges(topic, int(number))
        known, stored = self.topic_ids[topic], self.marks[f"{topic}/{number}"]
        if known.topic and known.topic == stored.note["id"]["topic"]:  # else all of it may be new
            since = self.client.TopicPartition(topic, int(number), max(at - SET_BACK, 0))
            [found] = self.consumer.offsets_for_times([since], timeout=ANSWER_TIMEOUT)
            low = found.offset if found.offset >= 0 else high
        self._move(topic, number, low, reason=Reason.RESTORED)

    def _lag(self) -> int | None:
        """The lag as the client knows it, without a request to the servers."""
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
        said = f"Kafka reports: {error.str() or error.name()}."
        return SourceError(said, remedy=UNREACHABLE if is_away else "")


def _reading(settings: KafkaSettings) -> Callable[[Any], Received | Poison | None]:
    """The function that makes an event from a message."""

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
