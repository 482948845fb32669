"""What the engine needs of whatever keeps a journal. The database's is `runs.durable.store`, that of tests in memory
`agents.journal.memory`, and that of shadow runs `runs.shadow.store`."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from agents.effects import Effects
from agents.journal.budget import UNLIMITED, Cost, Limits, Refusal
from agents.journal.ends import Interrupted
from agents.journal.entries import NewWait, RecordedStep, RecordedWait, StepEntry
from agents.journal.protocol import StepWish, WaitWish


class Store(Protocol):
    """Reads and writes entries; what they mean is the engine's to decide."""

    agent: str
    max_output: int  # bytes of a step's output
    max_entries: int
    is_binding: bool = True  # the body has to ask for what is recorded, in its order
    is_tainted: bool = False  # the body has seen untrusted data; the next commit says so of its run

    steps: Mapping[str, RecordedStep]
    waits: Mapping[str, RecordedWait]

    # What is recorded

    def step(self, key: str, wish: StepWish) -> RecordedStep | None:
        return self.steps.get(key)

    def value(self, key: str) -> RecordedStep | None:
        return self.steps.get(key)

    def wait(self, key: str, wish: WaitWish) -> RecordedWait | None:
        return self.waits.get(key)

    def recalled(self, key: str, kind: str) -> None:
        """The body is handed this entry."""
        return None

    # Writing

    def transaction(self, key: str) -> AbstractContextManager[None]:
        """Around the body of a transactional step and its entry. It raises only where nothing is committed."""

    def write(self, entries: Sequence[StepEntry], effects: Effects) -> bool:
        """The last act within `transaction`. Is the run to stop behind it? Permanent: that must not be left behind."""

    def commit(self, entries: Sequence[StepEntry], effects: Effects, *, at: str) -> bool:
        """The same in a commit of their own, which passes the point `at`."""

    def forget(self, key: str) -> None:
        """Take back the intent of a step that did not happen."""
        return None

    def record_late(self, key: str, output: str, effects: Effects) -> None:
        """A step that may happen at most once happened, and its entry could not be written."""
        return None

    # Executing

    @property
    def in_transaction(self) -> bool:
        """Has the body a transaction of its own open?"""

    def obstacle(self, key: str, wish: StepWish) -> Interrupted | None:
        """Why this step cannot be performed here."""
        return None

    def limits(self) -> Limits:
        """What budgets limit of this run."""
        return UNLIMITED

    def reserve(self, key: str, cost: Cost) -> Refusal | None:
        """Set aside what a step may cost, until its entry says what it did cost; or why there is no room for it. Permanent:
        a budget cannot tell."""
        return None

    def give_back(self, key: str) -> None:
        """Free what is set aside for a step: it failed at no cost."""
        return None

    def answer(self, wait: NewWait) -> "RecordedWait | Interrupted | None":
        """What came of a wait at once, if anything did; or why nothing can."""
        return None

    def draw(self, key: str, draw: Callable[[], Any]) -> Any:
        return draw()

    def limit(self, key: str, seconds: float) -> AbstractContextManager[None]:
        """TimeoutError once the step has taken so long."""
        return nullcontext()

    @property
    def seconds_left(self) -> float | None:
        """How long the body may go on; None: as long as it likes."""
        return None

    def explain(self, key: str, error: Exception) -> Exception | Interrupted:
        """The error of a step as the agent is to see it; or what it means for the whole run."""
        return error

    def reach(self, point: str) -> None:
        """A named place between two commits."""
        return None

    def leave_thread(self) -> None:
        """A thread of the body's own is done with a step."""
        return None
