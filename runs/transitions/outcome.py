"""The outcome of a claim, as a value."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol
from uuid import UUID

from agents.journal.entries import StepEntry
from agents.kernel.log_lines import LogChunk
from runs.models import Attempt, Run
from runs.states import RunStatus
from runs.transitions.entries import WaitEntry


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """The claim that an outcome ends, and the run's place in its key."""

    run_id: UUID
    epoch: int
    claim: UUID | None
    timeline: str = ""  # of the owner's claim; "" for other processes, or if unknown
    key: str | None
    slot: int | None
    key_limit: int = 1
    attempt: int | None = None  # its number, in case progress has reset the count since
    may_have_parent: bool = True


@dataclass(frozen=True, kw_only=True)
class Outbound:
    """A message for the outbox, delivered after `due_in`."""

    topic: str
    key: str
    payload: dict[str, Any]
    due_in: timedelta = timedelta()


@dataclass(frozen=True, kw_only=True)
class NoticeRow:
    """A notification to write."""

    sender: str
    text: str
    urgency: str
    topic: str = ""
    link: str = ""
    to: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The next status of a run. `attempt` None: no attempt ends, or the run's own row says all of it. `due_in` is a backoff.
    `holds_key`: the run keeps its place while it waits. `unproved`: the key of the step that it is parked over."""

    status: RunStatus
    attempt: Attempt.Outcome | None = None
    reason: str = ""
    error: str = ""
    traceback: str = ""
    result: Any = None
    due_in: timedelta | None = None
    give_back: bool = False
    holds_key: bool = False
    outbound: Sequence[Outbound] = field(default_factory=tuple)
    notices: Sequence[NoticeRow] = field(default_factory=tuple)
    entries: Sequence[StepEntry] = field(default_factory=tuple)
    wait: WaitEntry | None = None
    unproved: str = ""
    log: LogChunk | None = None
    is_tainted: bool = False  # the body has seen untrusted data
    exception: BaseException | None = field(default=None, repr=False, compare=False)  # why it failed, for the log


def released(reason: str) -> Outcome:
    """Back to the queue, with the attempt given back."""
    return Outcome(
        status=RunStatus.QUEUED, attempt=Attempt.Outcome.RELEASED, reason=f"released: {reason}", give_back=True
    )


def unproved(step: str, reason: str) -> str:
    """Why a run is uncertain that would have failed."""
    return (
        f"step {step!r} was begun and its end is not recorded: it is unknown whether it happened. {reason.capitalize()}"
    )


GOES_ON = frozenset({RunStatus.QUEUED, RunStatus.WAITING, RunStatus.UNCERTAIN})


def back_in_line(run: Run, reason: str) -> Outcome:
    """The outcome of a run that goes on after a person's or a late answer. The timers line it up for a place of its key."""
    due_in = timedelta() if run.key and run.slot is None else None
    return Outcome(status=RunStatus.QUEUED, reason=reason, due_in=due_in)


class Leaves(Protocol):
    """Effects of a run or a step."""

    @property
    def outbound(self) -> Sequence[Outbound]: ...
    @property
    def notices(self) -> Sequence[NoticeRow]: ...


def ticket_of(run: Run) -> Ticket:
    return Ticket(run_id=run.id, epoch=run.epoch, claim=run.claim, key=run.key, slot=run.slot, key_limit=run.key_limit)
