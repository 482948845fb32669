from typing import Any

from triggers.sources.brokers.kafka_topics import TopicId
from triggers.sources.continuity import Mark, Marks, Reason, Span

Partition = tuple[str, str]  # topic, number


class Offsets:
    """How far each partition is read. The `position` has the next offset by topic and partition; the marks have the same for the
    search for gaps, with the id of the topic and the time of the last recorded message; `spans` are those of the next batch."""

    def __init__(self, position: Any, marks: Marks) -> None:
        self.position: dict[str, dict[str, int]] = {topic: dict(offsets) for topic, offsets in (position or {}).items()}
        self.marks = dict(marks)
        self.spans: list[Span] = []
        self.proofs: dict[Partition, int] = {}  # milliseconds of the last recorded message, until it is looked at
        self.topic_ids: dict[str, TopicId] = {}

    def is_another(self, topic: str) -> bool:
        """Than the one whose offsets are stored."""
        stored = (self.marks.get(f"{topic}/{number}") for number in self.position.get(topic, {}))
        return any(mark and self.topic_ids[topic].is_another_than(TopicId.load(mark.note["id"])) for mark in stored)

    def mark(self, topic: str, number: str, *, is_first: bool) -> None:
        """The mark of a partition; the beginning of the partition if it has none. `is_first`: at a new connection."""
        mark = self.marks.get(f"{topic}/{number}")
        if mark is None:
            self.move(topic, number, self.position[topic][number])
        elif is_first and mark.note["at"] is not None:
            self.proofs[topic, number] = mark.note["at"]

    def move(
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

    def take(self, raw: Any) -> bool:
        """Move behind a message; False: it is the last recorded one, which has come once more."""
        topic, number = raw.topic(), str(raw.partition())
        self.proofs.pop((topic, number), None)
        offset, first = raw.offset(), self.position[topic][number]
        if offset < first:
            return False
        kind, milliseconds = raw.timestamp()
        # Offsets without a message are those of transactions and of compaction.
        self.move(topic, number, first, by=offset + 1 - first, at=milliseconds if kind else None)
        return True

    def is_set_back(self, raw: Any) -> bool:
        """Whether the last recorded message has been replaced by another one."""
        topic, number = raw.topic(), str(raw.partition())
        proof = self.proofs.get((topic, number))
        return proof is not None and raw.offset() == self.position[topic][number] - 1 and raw.timestamp()[1] != proof

    def is_same_topic(self, topic: str, number: str) -> bool:
        """Whether the topic is known to be the one of the mark."""
        known, stored = self.topic_ids[topic], self.marks[f"{topic}/{number}"]
        return bool(known.topic) and known.topic == stored.note["id"]["topic"]

    def fetched_from(self, topic: str, number: str) -> tuple[str, int, int]:
        """Where to fetch. The last recorded message comes once more: it is another one if offsets were given a second time."""
        return topic, int(number), self.position[topic][number] - ((topic, number) in self.proofs)
