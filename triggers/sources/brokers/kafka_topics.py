"""Which topic a topic is: one that was deleted and made again has the same name and gives its offsets a second time."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # of brokers that give topics no ids


@dataclass(frozen=True, kw_only=True)
class TopicId:
    """Empty: not known."""

    cluster: str = ""
    topic: str = ""

    @classmethod
    def load(cls, stored: Any) -> Self:
        return cls(**stored) if stored else cls()

    def dump(self) -> dict[str, str]:
        return asdict(self)

    def is_another_than(self, stored: "TopicId") -> bool:
        pairs = ((self.cluster, stored.cluster), (self.topic, stored.topic))
        return any(mine and theirs and mine != theirs for mine, theirs in pairs)

    def __str__(self) -> str:
        return f"{self.cluster}/{self.topic}"


def ids_of(client: Any, admin: Any, topics: Sequence[str], *, timeout: float) -> Mapping[str, str]:
    """The ids of topics, as far as the brokers say them: they may be too old, or the user not allowed to describe topics."""
    try:
        found = admin.describe_topics(client.TopicCollection(list(topics)), request_timeout=timeout)
        ids = {topic: str(answer.result(timeout).topic_id) for topic, answer in found.items()}
    except (client.KafkaException, TimeoutError):
        return {}
    return {topic: id for topic, id in ids.items() if id != NO_ID}
