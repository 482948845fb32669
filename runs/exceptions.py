"""
RunError
├── IllegalState    the object's state forbids the action
├── UnknownQueue    no setting, worker or run names the queue
├── UnknownAgent    no code, worker or run names the agent
├── CannotClaim     a value of the next run makes its claim fail
├── RunLost         this process no longer owns the run
└── GateWasQuiet    the run is over before its body begins
DeadlineExceeded    a body took longer than its timeout; passes through an agent's `except Exception`
StepTimedOut        a step took longer than its timeout; outside of the step it is a TimeoutError
"""


class RunError(Exception):
    pass


class IllegalState(RunError):
    """The object's state forbids the action; `status` is that state."""

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message)
        self.status = status


class UnknownQueue(RunError):
    """No setting, worker or run names the queue."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no queue {name!r}: no setting, live worker or run names it.")


class UnknownAgent(RunError):
    """No code, worker or run names the agent."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no agent {name!r}: no code here, live worker or run names it.")


class CannotClaim(RunError):
    """A value of the next run makes its claim fail, and with it the transaction that ends the current run."""


class RunLost(RunError):
    """The run's epoch has changed: another process took it from this one, which must not commit."""


class GateWasQuiet(RunError):
    """The gate saw nothing to do, and that is recorded: the run is deleted, or has succeeded."""


# Only for KeyboardInterrupt, psycopg cancels the running query and keeps the connection usable; after another exception from a
# signal handler the connection would be in the middle of a result.
class DeadlineExceeded(KeyboardInterrupt):
    """The run's body took longer than its timeout."""


class StepTimedOut(KeyboardInterrupt):
    """A step took longer than its timeout."""
