"""Why a durable body stops before its end. The caller (a worker, a test, a shadow run) decides what happens to its run."""

from collections.abc import Sequence

from agents.exceptions import describe
from agents.journal.entries import NewWait, StepEntry
from agents.journal.protocol import BudgetRequest, ModelRequest, SessionRequest


class Interrupted(BaseException):
    """Passes through an agent's `except Exception`. `entries` are not written yet."""

    def __init__(self, reason: str, entries: Sequence[StepEntry] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.entries = list(entries)


class Waiting(Interrupted):
    """The run waits for something that has not happened yet."""

    def __init__(self, wait: NewWait, entries: Sequence[StepEntry]) -> None:
        request = wait.request
        reason = request.reason if isinstance(request, BudgetRequest | SessionRequest | ModelRequest) else wait.key
        super().__init__(reason, entries)
        self.wait = wait


class Parked(Interrupted):
    """The run waits for a person to resolve it; the message gives the reason. `unproved`: the key of a step with an
    unknown outcome.
    """

    def __init__(self, reason: str, entries: Sequence[StepEntry] = (), *, unproved: str = "") -> None:
        super().__init__(reason, entries)
        self.unproved = unproved


class TriedAgain(Interrupted):
    """A step failed and has tries left, so the body runs again: after `after` seconds, if the step set a delay."""

    def __init__(
        self,
        failed: StepEntry,
        tries: int,
        error: BaseException,
        entries: Sequence[StepEntry],
        after: float | None = None,
    ) -> None:
        super().__init__(
            f"step {failed.key!r} will be retried: {failed.attempts} of {tries} tries failed", [*entries, failed]
        )
        self.failed = failed
        self.tries = tries
        self.error = error
        self.after = after


class Released(Interrupted):
    """The store requested that the run stops between two steps."""


class Lost(Interrupted):
    """The store is gone, or another process owns the run: `error` shows which."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(describe(error))
        self.error = error
