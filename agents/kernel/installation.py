"""Facts about the installation, for agents: read-only, and each of bounded cost.

    from agents.kernel.installation import facts

    facts.failed_runs(timedelta(hours=24))

`config.wiring` connects it: the answers come from the rooms above.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, cast
from uuid import UUID


@dataclass(frozen=True, kw_only=True)
class FailedRuns:
    """Runs of an agent that failed for one cause: an error without the numbers, names and ids in it. `runs` are some of them, the
    newest first, and `error` is that of the newest."""

    agent: str
    cause: str
    error: str
    count: int
    first_at: datetime
    last_at: datetime
    runs: Sequence[UUID]


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """The runs of a queue that could start and have not; `waiting` ends at 1,000 for each agent, `oldest` is for how long the
    longest has waited. `children` of the workers serve the queue."""

    queue: str
    waiting: int
    oldest: timedelta
    running: int
    children: int
    is_paused: bool


@dataclass(frozen=True, kw_only=True)
class OpenApproval:
    """A question of a run that no person has decided. `page` is its address in the admin."""

    id: UUID
    agent: str
    question: str
    asked_at: datetime
    until: datetime | None
    page: str


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Something that is wrong with the installation, and what to do about it."""

    name: str
    text: str
    remedy: str
    is_bad: bool


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The number of an agent's runs of some span that have finished, and of those that failed."""

    agent: str
    runs: int
    failed: int


class Facts(Protocol):
    """Agents read them in a gate or in a step with effect "read": a replay must see the same."""

    def failed_runs(self, within: timedelta, most: int = 20) -> list[FailedRuns]:
        """The newest 1,000 failed runs by cause, the most frequent first; a requeued run no longer counts as failed."""

    def backlog(self) -> list[Backlog]:
        """Each queue, by name."""

    def open_approvals(self, most: int = 100) -> list[OpenApproval]:
        """The open approvals that have waited longest."""

    def troubles(self, most: int = 50) -> list[Trouble]:
        """The problems that `manage.py doctor` shows, bad ones first."""

    def finished(self, since: datetime, until: datetime) -> list[Finished]:
        """Finished runs whose event arrived in this span, by agent; at most 50,000 runs are read."""


class _Connection:
    """Stands for the answers from before they are connected."""

    answers: Facts | None = None

    def __getattr__(self, name: str) -> Any:
        if self.answers is None:
            raise RuntimeError(f"agents.kernel.installation.facts.{name} is not connected; config.wiring connects it")
        return getattr(self.answers, name)


_connection = _Connection()
facts = cast(Facts, _connection)


def connect(answers: Facts) -> None:
    _connection.answers = answers
