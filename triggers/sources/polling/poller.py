"""When a source is polled, and what a poll leaves for the next one."""

import random
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, TypeVar

from agents.kernel.durations import parse_duration
from triggers.sources.continuity import Gap
from triggers.sources.polling.novelty import digest
from triggers.sources.runner import Assignment, Batch, Poison, Reader, Received, Runner, SourceError
from triggers.sources.settings import InvalidSettings, setting

NEW, ALL = "new", "all"
SHORTEST, LONGEST = timedelta(seconds=10), timedelta(days=7)
JITTER = 0.1  # part of the interval, more or less, so that sources with one interval do not poll together
HURRY = timedelta(seconds=1)  # between two polls where there is more
SECONDS = 45.0  # for all requests of a poll

P = TypeVar("P", bound="EverySettings")


def interval(value: str) -> str:
    try:
        return "" if SHORTEST <= parse_duration(value) <= LONGEST else "must be from 10s to 7d"
    except ValueError as error:
        return f"is wrong: {error}"


@dataclass(frozen=True, kw_only=True)
class EverySettings:
    """When to poll."""

    every: str = setting(
        "5m", "Every", "Time between two polls, such as 30s, 5m or 1h; from 10s to 7d.", check=interval
    )

    @property
    def pause(self) -> timedelta:
        return parse_duration(self.every)


@dataclass(frozen=True, kw_only=True)
class PollSettings(EverySettings):
    """When to poll, and what to do with items that are there before the first poll."""

    begin_with: str = setting(
        NEW,
        "Begin with",
        "“new”: items that exist at the first poll make no event; “all”: they do, the oldest first.",
        choices=(NEW, ALL),
    )


@dataclass(frozen=True, kw_only=True)
class Polled:
    """The result of a poll, and the state that the next one begins with."""

    state: dict[str, Any]
    messages: Sequence[Received | Poison] = ()
    gaps: Sequence[Gap] = ()
    has_more: bool = False  # poll again soon
    receipt: Sequence[Any] = ()
    keep: Callable[[], None] | None = None
    failure: SourceError | None = None


class Poller(Runner[P]):
    """A kind of source that is polled. Its secret is the credential that the server requires, if any."""

    is_secret_given = True
    docs = "polling-and-mail"

    def clean_secret(self, secret: str) -> str:
        if not secret.strip() or not secret.isprintable():
            raise InvalidSettings({"secret": "must be printable, and not empty"})
        return secret.strip()

    def new_secret(self) -> str:
        raise NotImplementedError("the server has the secret")


class PollingReader(Reader):
    """Polls when it is due. The time of the next poll is part of the position, so that processes that start again and again do not
    poll more often."""

    def __init__(self, assignment: Assignment[Any], *, target: str) -> None:
        self.assignment = assignment
        self.settings = assignment.settings
        self.polled_at = -inf  # monotonic seconds
        self.target = digest(target)  # another address begins from the start
        position = assignment.position
        is_ours = isinstance(position, dict) and position.get("target") == self.target
        self.state: dict[str, Any] = position["state"] if is_ours else {}
        self.due_at = datetime.fromisoformat(position["due_at"]) if is_ours else datetime.now(UTC)

    @abstractmethod
    def poll(self, state: dict[str, Any]) -> Polled:
        """Ask once, with the state of the last poll, empty at first. Raises SourceError."""

    def read(self, wait: float) -> Batch:
        if (left := self._until_due()) > timedelta():
            return Batch(next_in=left)
        self.polled_at = time.monotonic()
        polled = self.poll(self.state)
        if polled.failure:
            # What was read before it is recorded. The next poll is due at once, after the pause.
            now = datetime.now(UTC).isoformat()
            is_new = bool(polled.messages) or polled.state != self.state
            position = {"target": self.target, "state": polled.state, "due_at": now} if is_new else None
            return Batch(
                messages=polled.messages,
                gaps=polled.gaps,
                position=position,
                keep=polled.keep,
                failure=polled.failure,
            )
        pause = HURRY if polled.has_more else self.settings.pause * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311
        due_at = datetime.now(UTC) + pause
        position = {"target": self.target, "state": polled.state, "due_at": due_at.isoformat()}
        return Batch(
            messages=polled.messages,
            gaps=polled.gaps,
            position=position,
            receipt=polled.receipt,
            next_in=pause,
            keep=polled.keep,
        )

    def confirm(self, batch: Batch) -> None:
        if batch.position is not None:
            self.state = batch.position["state"]
            self.due_at = datetime.fromisoformat(batch.position["due_at"])

    def hurry(self) -> None:
        left = SHORTEST - timedelta(seconds=min(time.monotonic() - self.polled_at, SHORTEST.total_seconds()))
        self.due_at = min(self.due_at, datetime.now(UTC) + left)

    def _until_due(self) -> timedelta:
        # At most one interval: the clock that set `due_at` may have been wrong.
        longest: timedelta = self.settings.pause * (1 + JITTER)
        return min(self.due_at - datetime.now(UTC), longest)
