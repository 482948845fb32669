from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from triggers.sources.brokers.kafka_settings import KafkaSettings
from triggers.sources.brokers.kafka_topics import TopicId, ids_of
from triggers.sources.brokers.message import UNREACHABLE
from triggers.sources.runner import BATCH, SourceError

ANSWER_TIMEOUT = 10.0  # seconds
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
Position = Mapping[str, Mapping[str, int]]  # topic → partition → the next offset
Offset = tuple[str, int, int]  # of a partition of a topic


class KafkaClient:
    """The connections to the cluster: a consumer that joins no group, and a client for the ids of topics."""

    def __init__(self, library: Any, settings: KafkaSettings, *, slug: str, secret: str) -> None:
        self.library, self.partition = library, library.TopicPartition
        self.trouble: SourceError | None = None  # why nothing may come
        self.admin: Any = None
        self.configuration = {**configuration(settings, slug, secret), "error_cb": self._note}
        group = {"group.id": settings.group_of(slug)}
        self.consumer = library.Consumer({**CLIENT, **self.configuration, **group}, logger=None)

    def close(self) -> None:
        self.consumer.close()

    def poll(self, wait: float) -> list[Any]:
        first = self.consumer.poll(wait)
        return [] if first is None else [first, *self.consumer.consume(BATCH - 1, timeout=0)]

    def fetch(self, offsets: Iterable[Offset]) -> None:
        """Each partition from its offset; what the client has fetched before is dropped."""
        self.consumer.assign([self.partition(*offset) for offset in offsets])

    def commit(self, offsets: Iterable[Offset]) -> None:
        with suppress(self.library.KafkaException):  # for Kafka's own tools alone: the offsets that count are ours
            self.consumer.commit(offsets=[self.partition(*offset) for offset in offsets], asynchronous=True)

    def committed(self, partitions: Sequence[tuple[str, int]]) -> list[Offset]:
        """Where the group stands; the offset is negative where it has committed none."""
        asked = [self.partition(*partition) for partition in partitions]
        found = self.consumer.committed(asked, timeout=ANSWER_TIMEOUT) if asked else []
        return [(one.topic, one.partition, one.offset) for one in found]

    def partitions_of(self, topic: str) -> tuple[list[int], TopicId]:
        metadata = self.consumer.list_topics(topic, timeout=ANSWER_TIMEOUT)
        found = metadata.topics[topic]
        if found.error is not None or not found.partitions:
            raise SourceError(
                f"The topic {topic} cannot be read: {found.error or 'it has no partitions'}.",
                remedy="Correct the name of the topic in the source's settings, or create it, and let the user read it.",
            )
        ids = self._ids(topic) if self._has_controller(metadata) else {}
        return sorted(found.partitions), TopicId(cluster=metadata.cluster_id or "", topic=ids.get(topic, ""))

    def edges(self, topic: str, number: int) -> tuple[int, int]:
        """The oldest offset of a partition, and the next one."""
        asked = self.partition(topic, number)
        low, high = self.consumer.get_watermark_offsets(asked, timeout=ANSWER_TIMEOUT, cached=False)
        return low, high

    def offset_since(self, topic: str, number: int, milliseconds: int) -> int | None:
        """Of the first message since a time; None: there is none."""
        since = self.partition(topic, number, milliseconds)
        [found] = self.consumer.offsets_for_times([since], timeout=ANSWER_TIMEOUT)
        return found.offset if found.offset >= 0 else None

    def lag(self, position: Position) -> int:
        """The lag as the client knows it, without a request to the servers."""
        lag = 0
        for topic, offsets in position.items():
            for number, offset in offsets.items():
                _, high = self.consumer.get_watermark_offsets(self.partition(topic, int(number)), cached=True)
                lag += max(high - offset, 0)
        return lag

    def is_out_of_range(self, error: Any) -> bool:
        return bool(error.code() == self.library.KafkaError._AUTO_OFFSET_RESET)

    def as_source_error(self, error: Any) -> SourceError:
        codes = self.library.KafkaError
        is_away = error.code() in (codes._ALL_BROKERS_DOWN, codes._TRANSPORT, codes._RESOLVE, codes._TIMED_OUT)
        said = f"Kafka reports: {error.str() or error.name()}."
        return SourceError(said, remedy=UNREACHABLE if is_away else "")

    def _note(self, error: Any) -> None:
        """Called by the library while it polls."""
        codes = self.library.KafkaError
        if error.code() in (codes._ALL_BROKERS_DOWN, codes._AUTHENTICATION) or error.fatal():
            self.trouble = self.as_source_error(error)

    def _has_controller(self, metadata: Any) -> bool:
        """Whether the cluster has a controller: without one the client would block on a request for ids."""
        return metadata.controller_id in metadata.brokers

    def _ids(self, topic: str) -> Mapping[str, str]:
        if self.admin is None:
            self.admin = self.library.admin.AdminClient(self.configuration, logger=None)
        return ids_of(self.library, self.admin, [topic], timeout=ANSWER_TIMEOUT)


def configuration(settings: KafkaSettings, slug: str, secret: str) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "bootstrap.servers": settings.servers,
        "client.id": f"wakeful-{slug}",
        "security.protocol": settings.protocol,
    }
    if settings.protocol.startswith("SASL"):
        chosen |= {
            "sasl.mechanism": settings.mechanism,
            "sasl.username": settings.username,
            "sasl.password": secret,
        }
    return chosen
