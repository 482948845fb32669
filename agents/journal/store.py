"""The store that keeps a journal, as the engine needs it. `runs.durable.store` is the database's, `agents.journal.in_memory` the
one of tests, `runs.shadow.store` the one of shadow runs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from agents.journal.budget import UNLIMITED, Cost, Limits, Refusal, Reserved, Used
from agents.journal.ends import Interrupted
from agents.journal.entries import NewWait, RecordedStep, RecordedWait, StepEntry
from agents.journal.protocol import StepRequest, WaitRequest
from agents.kernel.effects import Effects


@dataclass(frozen=True, kw_only=True)
class Busy:
    """Another run holds the session, or is next; wait at most this long."""

    reason: str
    at_most: timedelta


class Store(Protocol):
    """Reads and writes entries; the engine decides what they mean."""

    agent: str
    max_output: int  # bytes of a step's output
    max_entries: int
    is_binding: bool = True  # the body must request the recorded entries in their order
    is_tainted: bool = False  # the body has seen untrusted data; the next commit marks its run as tainted
    keeps_turns: bool = True  # the turns of sessions are written

    steps: Mapping[str, RecordedStep]
    waits: Mapping[str, RecordedWait]

    # What is recorded

    def step(self, key: str, request: StepRequest) -> RecordedStep | None:
        return self.steps.get(key)

    def value(self, key: str) -> RecordedStep | None:
        return self.steps.get(key)

    def wait(self, key: str, request: WaitRequest) -> RecordedWait | None:
        return self.waits.get(key)

    def recalled(self, key: str, kind: str) -> None:
        """Called when the body gets this entry."""
        return None

    # Writing

    def transaction(self, key: str) -> AbstractContextManager[None]:
        """Encloses the body of a transactional step and its entry. It raises only if nothing is committed."""

    def write(self, entries: Sequence[StepEntry], effects: Effects, *, at: str) -> bool:
        """The last call within `transaction`, which it may commit, past the failpoint `at`; returns whether the run must stop after it.
        Permanent: invalid effects."""

    def commit(self, entries: Sequence[StepEntry], effects: Effects, *, at: str) -> bool:
        """Write and commit in a transaction of its own, which passes the failpoint `at`."""

    def reason_to_stop(self) -> Interrupted | None:
        """Why the run must not make its next model request, such as that its agent was stopped."""
        return None

    def leaves_requests(self) -> bool:
        """Does another process make requests to models, and is this one needed for other runs?"""
        return False

    def forget(self, key: str) -> None:
        """Remove the intent of a step that did not happen."""
        return None

    def record_late(self, key: str, output: str, effects: Effects) -> None:
        """Record an at_most_once step that happened, after `commit` has failed."""
        return None

    # Executing

    @property
    def in_transaction(self) -> bool:
        """Has the body opened a transaction of its own?"""

    def obstacle(self, key: str, request: StepRequest) -> Interrupted | None:
        """Why this step cannot run here, if so."""
        return None

    def limits(self) -> Limits:
        """The limits that budgets set for this run."""
        return UNLIMITED

    def reserve(self, key: str, cost: Cost) -> Reserved | Refusal | None:
        """Reserve the most that a model request may cost, until `settle`; or return why no budget has room for it.
        None: no budget applies. `key` is the key of its step. Permanent: a budget cannot decide.
        """
        return None

    def settle(self, reserved: Reserved, used: Used) -> None:
        """Book what the request used, and release the rest of its reservation."""
        return None

    def spend(self, cost: Cost) -> Refusal | None:
        """Count a tool call that is about to begin; or return why no budget has room for it."""
        return None

    def hold(self, session: str) -> Busy | None:
        """Hold the session for a turn, until `let_go`; or return why the turn has to wait."""
        return None

    def let_go(self, session: str) -> None:
        """Release the session after a turn; within a transaction, when it commits."""
        return None

    def answer(self, wait: NewWait) -> "RecordedWait | Interrupted | None":
        """The result of a wait, if it is known at once; or the reason why the run cannot wait here. The next `commit` writes the
        wait, if it is to be written."""
        return None

    def draw(self, key: str, draw: Callable[[], Any]) -> Any:
        return draw()

    def limit(self, key: str, seconds: float) -> AbstractContextManager[None]:
        """Raise TimeoutError in the step after this many seconds."""
        return nullcontext()

    @property
    def seconds_left(self) -> float | None:
        """The seconds that the body may still run; None: no limit."""
        return None

    def explain(self, key: str, error: Exception) -> Exception | Interrupted:
        """The error of a step as the agent gets it; or the end of the run, if the error ends it."""
        return error

    def reach(self, point: str) -> None:
        """Called at a named failpoint between two commits."""
        return None

    def leave_thread(self) -> None:
        """Called when a thread of the body has ended a step."""
        return None
