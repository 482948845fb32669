import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from triggers.sources.brokers.kafka_client import KafkaClient, Offset
from triggers.sources.brokers.kafka_messages import reading
from triggers.sources.brokers.kafka_offsets import Offsets, Partition
from triggers.sources.brokers.kafka_settings import NEW, KafkaSettings
from triggers.sources.continuity import Reason
from triggers.sources.runner import Assignment, Batch, Poison, Reader, Received

PARTITIONS_EVERY = 60.0  # seconds between two looks for new partitions
LAG_EVERY = 10.0
SET_BACK = 3_600_000  # milliseconds by which clocks may differ, when a topic has lost its end


class KafkaReader(Reader):
    """A reader that joins no consumer group, because Wakeful's lease decides who reads: a successor need not wait for a
    rebalance.
    """

    def __init__(self, assignment: Assignment[KafkaSettings], library: Any) -> None:
        self.settings = assignment.settings
        self.offsets = Offsets(assignment.position, assignment.marks)
        self.is_first = not self.offsets.position
        self.event_of = reading(self.settings)
        self.partitions_at = self.lag_at = 0.0
        self.assigned: list[Partition] = []
        self.client = KafkaClient(library, self.settings, slug=assignment.slug, secret=assignment.secret)
        try:
            self._assign()
        except library.KafkaException as error:
            self.close()
            raise self.client.as_source_error(error.args[0]) from None
        except BaseException:
            self.close()
            raise

    def read(self, wait: float) -> Batch:
        if time.monotonic() >= self.partitions_at:
            self._assign()
        found = self.client.poll(wait)
        messages = self._take_all(found)
        if not found and self.client.trouble:
            raise self.client.trouble
        lag = self._lag()
        # A copy: a later read that fails must not move the position of this batch.
        position = {topic: dict(offsets) for topic, offsets in self.offsets.position.items()}
        is_news, self.is_first = bool(found or self.offsets.spans) or self.is_first, False
        spans, self.offsets.spans = self.offsets.spans, []
        receipt = bool(found) or None
        return Batch(messages=messages, position=position if is_news else None, receipt=receipt, lag=lag, spans=spans)

    def confirm(self, batch: Batch) -> None:
        position = self.offsets.position
        self.client.commit(
            (topic, int(number), position[topic][number])
            for topic in batch.position
            for number in batch.position[topic]
        )

    def close(self) -> None:
        self.client.close()

    def _assign(self) -> None:
        """Read all partitions, each from its next offset; those of a topic that was made again from their beginning."""
        offsets, known = self.offsets, dict[str, list[int]]()
        for topic in self.settings.topic_names:
            known[topic], offsets.topic_ids[topic] = self.client.partitions_of(topic)
        again = [topic for topic in known if offsets.is_another(topic)]
        new = [
            (topic, number)
            for topic in known
            for number in known[topic]
            if topic not in again and str(number) not in offsets.position.get(topic, {})
        ]
        begun = set(offsets.position)
        for topic, number, offset in list(self._beginnings(new, begun)):
            offsets.position.setdefault(topic, {})[str(number)] = offset
        for topic in again:
            offsets.position[topic] = {}
            for number in known[topic]:
                offsets.move(topic, str(number), self.client.edges(topic, number)[0])
        for topic in known:
            for number in known[topic]:
                offsets.mark(topic, str(number), is_first=not self.partitions_at)
        if new or again or not self.partitions_at:
            self.assigned = [(topic, str(number)) for topic in known for number in known[topic]]
            self._fetch()
        self.partitions_at = time.monotonic() + PARTITIONS_EVERY

    def _fetch(self) -> None:
        self.client.fetch(self.offsets.fetched_from(topic, number) for topic, number in self.assigned)

    def _beginnings(self, new: Sequence[tuple[str, int]], begun: Collection[str]) -> Iterator[Offset]:
        """Where to begin partitions that were not read yet: where the group stands, else by the settings. A partition that was
        added to a topic later is read from its beginning."""
        for topic, number, stands in self.client.committed([one for one in new if one[0] not in begun]):
            low, high = (stands, stands) if stands >= 0 else self.client.edges(topic, number)
            yield topic, number, high if self.settings.start == NEW else low
        for topic, number in new:
            if topic in begun:
                yield topic, number, self.client.edges(topic, number)[0]

    def _take_all(self, found: Sequence[Any]) -> list[Received | Poison]:
        messages, moved = [], set[Partition]()
        for raw in found:
            partition = raw.topic(), str(raw.partition())
            if partition in moved:
                continue  # it is read from another place
            error = raw.error()
            if error and self.client.is_out_of_range(error):
                self._gap(*partition)
                moved.add(partition)
            elif error:
                self._fail(error)
            elif self.offsets.is_set_back(raw):
                self._go_back(*partition)
                moved.add(partition)
            elif message := self._take(raw):
                messages.append(message)
        if moved:
            self._fetch()
        return messages

    def _take(self, raw: Any) -> Received | Poison | None:
        self.client.trouble = None
        return self.event_of(raw) if self.offsets.take(raw) else None

    def _fail(self, error: Any) -> None:
        trouble = self.client.as_source_error(error)
        if not error.retriable():
            raise trouble
        self.client.trouble = trouble

    def _gap(self, topic: str, number: str) -> None:
        """Kafka has not got what was to be read: go on with the oldest that it has."""
        self.offsets.proofs.pop((topic, number), None)
        wanted = self.offsets.position[topic][number]
        low, high = self.client.edges(topic, int(number))
        if not low <= wanted <= high:
            self.offsets.move(topic, number, low, reason=Reason.RESTORED if wanted > high else None)

    def _go_back(self, topic: str, number: str) -> None:
        """The topic was made again or has lost its end, and has grown past the place since. Ids have the time of a message, so that
        what is read twice is one event."""
        at = self.offsets.proofs.pop((topic, number))
        low, high = self.client.edges(topic, int(number))
        if self.offsets.is_same_topic(topic, number):  # else all of it may be new
            since = self.client.offset_since(topic, int(number), max(at - SET_BACK, 0))
            low = high if since is None else since
        self.offsets.move(topic, number, low, reason=Reason.RESTORED)

    def _lag(self) -> int | None:
        if time.monotonic() < self.lag_at:
            return None
        self.lag_at = time.monotonic() + LAG_EVERY
        return self.client.lag(self.offsets.position)
