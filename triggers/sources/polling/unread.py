"""Messages that a provider answers with an error, each time: after some polls they are set aside, so that they do not hold up those behind
them. They stand among the messages that could not become events, and are tried again, each hour for a week."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from triggers.models import PoisonMessage
from triggers.sources.runner import Poison, Received, SourceError

M = TypeVar("M")

TRIES, AFTER = 3, timedelta(minutes=15)  # polls, and a time, in which the first message that waits holds up the others
EVERY, FOR = timedelta(hours=1), timedelta(days=7)
MOST = 100  # that are tried again; those that fail longest make way
NEIGHBOURS = 5  # messages that are tried to see whether the provider fails, or one message
AGAIN, NOT_AGAIN = "It is tried again each hour for seven days.", "It is not tried again."


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

    def neighbours(self, behind: Sequence[M]) -> Sequence[M]:
        """Those of the messages behind the first one to try: if the provider gives one of them, it is the first one that it does not
        give. Each poll tries others: several in a row may be such messages."""
        first = self.tries * NEIGHBOURS % max(len(behind), 1)
        return [*behind[first:], *behind[:first]][:NEIGHBOURS]

    def set_aside(self, error: SourceError) -> list[Poison]:
        """Of a message for which `is_over`; and of those that make way for it."""
        head = self.head or {}
        id, since = head["id"], head["since"]
        self.head = None
        crowd = sorted(self.aside, key=lambda one: _time(one["since"]))[: max(len(self.aside) + 1 - MOST, 0)]
        left = self.give_up([one["id"] for one in crowd], f"more than {MOST} messages cannot be read")
        self.aside = [*self.aside, {"id": id, "since": since, "due": _text(_now() + EVERY)}]
        return [*left, _poison(id, since, _words(error), AGAIN)]

    def give_up(self, ids: Sequence[str], why: str) -> list[Poison]:
        """Try these no more."""
        left = [one for one in self.aside if one["id"] in ids]
        self.aside = [one for one in self.aside if one["id"] not in ids]
        return [_poison(one["id"], one["since"], why, NOT_AGAIN) for one in left]

    def try_again(
        self, read: Callable[[str], Received | None], source: UUID | None
    ) -> tuple[Sequence[Received | Poison], Callable[[], None] | None]:
        """The message that is due, if there is one: as an event, if it is given now; and what removes it from those that could not become
        events."""
        if not self.aside or _time(self.aside[0]["due"]) > _now():
            return [], None
        known, *self.aside = self.aside
        id, since = known["id"], known["since"]
        try:
            message = read(id)
        except SourceError as error:
            if _now() - _time(since) > FOR:
                return [_poison(id, since, _words(error), NOT_AGAIN)], None
            self.aside = [*self.aside, {**known, "due": _text(_now() + EVERY)}]
            return [_poison(id, since, _words(error), AGAIN)], None
        return [message] if message else [], partial(forget_poison, source, event_of(id))


def event_of(id: str) -> str:
    """The id of the event of a message."""
    return f"message:{id}"


def forget_poison(source: UUID | None, id: str) -> None:
    PoisonMessage.objects.filter(source=source, message_id=id).delete()


def _poison(id: str, since: str, why: str, then: str) -> Poison:
    return Poison(id=event_of(id), reason=f"The message cannot be read since {since[:16]}Z: {why}. {then}")


def _words(error: SourceError) -> str:
    return str(error)[:150].rstrip(".")


def _now() -> datetime:
    return datetime.now(UTC)


def _text(at: datetime) -> str:
    return at.isoformat()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
