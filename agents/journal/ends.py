"""Why a durable body goes no further for now. The caller (a worker, a test, a shadow run) says what becomes of it."""

from collections.abc import Sequence

from agents.exceptions import describe
from agents.journal.entries import NewWait, StepEntry
from agents.journal.protocol import BudgetWish


class Interrupted(BaseException):
    """Passes through an agent's `except Exception`. `entries` are still to be written down."""

    def __init__(self, reason: str, entries: Sequence[StepEntry] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.entries = list(entries)


class Waiting(Interrupted):
    """The run waits for what has not come."""

    def __init__(self, wait: NewWait, entries: Sequence[StepEntry]) -> None:
        super().__init__(wait.wish.reason if isinstance(wait.wish, BudgetWish) else wait.key, entries)
        self.wait = wait


class Parked(Interrupted):
    """The run waits for a person to resolve it; the message says why. `unproved` is the step that it is parked over, if it is."""

    def __init__(self, reason: str, entries: Sequence[StepEntry] = (), *, unproved: str = "") -> None:
        super().__init__(reason, entries)
        self.unproved = unproved


class TriedAgain(Interrupted):
    """A step failed and has tries left, so the body begins once more: `after` so many seconds, if the step said."""

    def __init__(
        self,
        failed: StepEntry,
        tries: int,
        error: BaseException,
        entries: Sequence[StepEntry],
        after: float | None = None,
    ) -> None:
        super().__init__(
            f"step {failed.key!r} is tried again: {failed.attempts} of {tries} tries failed", [*entries, failed]
        )
        self.failed = failed
        self.tries = tries
        self.error = error
        self.after = after


class Released(Interrupted):
    """The store wants the run to stop between two steps."""


class Lost(Interrupted):
    """The store, or the run, is gone: `error` says how."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(describe(error))
        self.error = error
