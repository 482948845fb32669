"""
RunError
├── IllegalState    the object's state forbids the action
├── UnknownQueue    no setting, worker or run names such a queue
├── CannotClaim     a value of the next run makes its claim fail
└── RunLost         this process no longer owns the run it works on
DeadlineExceeded    a body took longer than its timeout; passes through an agent's `except Exception`
StepTimedOut        the same of a step, until it has left the step
"""


class RunError(Exception):
    pass


class IllegalState(RunError):
    """The object's state forbids the action; `status` is that state."""

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message)
        self.status = status


class UnknownQueue(RunError):
    """No setting, worker or run names such a queue."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no queue {name!r}: no setting, live worker or run names it.")


class CannotClaim(RunError):
    """A value of the next run makes its claim fail. The transaction it was claimed in is lost, through no fault of its own."""


class RunLost(RunError):
    """The run's epoch has moved on: somebody took it from this process, so nothing of it may commit."""


# psycopg cancels the query in flight and leaves its connection usable for KeyboardInterrupt alone;
# any other exception out of a signal handler would leave the connection in the middle of a result.
class DeadlineExceeded(KeyboardInterrupt):
    """The run's body took longer than its timeout."""


class StepTimedOut(KeyboardInterrupt):
    """A step took longer than its timeout."""
