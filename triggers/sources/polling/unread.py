"""Messages that a provider answers with an error, each time: after some polls they are set aside, so that they do not hold up those behind
them. They stand among the messages that could not become events, and are tried again, each hour for a week."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from triggers.models import PoisonMessage
from triggers.sources.runner import Poison, SourceError

TRIES, AFTER = 3, timedelta(minutes=15)  # polls, and a time, in which the first message that waits holds up the others
EVERY, FOR = timedelta(hours=1), timedelta(days=7)
MOST = 100  # that are tried again; the oldest make way


@dataclass(kw_only=True)
class Unread:
    """Of the state of a poll. `head`: the first message that waits, if it failed: `id`, `tries`, `since`. `aside`: those that are tried
    again: `id`, `since`, `due`, the one that is due first in front."""

    head: dict[str, Any] | None = None
    aside: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, state: dict[str, Any]) -> "Unread":
        return cls(head=state.get("head"), aside=list(state.get("aside", ())))

    @property
    def state(self) -> dict[str, Any]:
        return {name: value for name, value in (("head", self.head), ("aside", self.aside)) if value}

    def note(self, id: str) -> None:
        """The first message that waits has failed once more."""
        new: dict[str, Any] = {"tries": 0, "since": _text(_now())}
        known = self.head if self.head and self.head["id"] == id else new
        # Another one: the poll is compared with the state before it.
        self.head = {"id": id, "tries": known["tries"] + 1, "since": known["since"]}

    @property
    def tries(self) -> int:
        """How often the first message that waits has failed."""
        return int(self.head["tries"]) if self.head else 0

    def is_over(self, id: str) -> bool:
        """Has it failed for long enough to be set aside when it fails now?"""
        head = self.head
        return bool(head and head["id"] == id and head["tries"] + 1 >= TRIES and _now() - _time(head["since"]) >= AFTER)

    def set_aside(self, error: SourceError) -> Poison:
        """Of a message for which `is_over`."""
        head = self.head or {}
        id, since = head["id"], head["since"]
        self.aside = [*self.aside, {"id": id, "since": since, "due": _text(_now() + EVERY)}][-MOST:]
        self.head = None
        return _poison(id, error, since, "It is tried again each hour for seven days.")

    def due(self) -> str:
        """The id of a message to try again now; empty if there is none."""
        return self.aside[0]["id"] if self.aside and _time(self.aside[0]["due"]) <= _now() else ""

    def still(self, id: str, error: SourceError) -> Poison:
        """It has failed again."""
        [known] = [one for one in self.aside if one["id"] == id]
        self.forget(id)
        if _now() - _time(known["since"]) > FOR:
            return _poison(id, error, known["since"], "It is not tried again.")
        self.aside.append({**known, "due": _text(_now() + EVERY)})
        return _poison(id, error, known["since"], "It is tried again each hour for seven days.")

    def forget(self, id: str) -> None:
        self.aside = [one for one in self.aside if one["id"] != id]


def event_of(id: str) -> str:
    """The id of the event of a message."""
    return f"message:{id}"


def forget_poison(source: UUID | None, id: str) -> None:
    PoisonMessage.objects.filter(source=source, message_id=id).delete()


def _poison(id: str, error: SourceError, since: str, then: str) -> Poison:
    said = str(error)[:150]
    return Poison(id=event_of(id), reason=f"The message cannot be read since {since[:16]}Z: {said.rstrip('.')}. {then}")


def _now() -> datetime:
    return datetime.now(UTC)


def _text(at: datetime) -> str:
    return at.isoformat()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
