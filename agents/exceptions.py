"""
AgentError
├── Retry            the agent asks for another attempt
├── Permanent        another attempt would fail the same way
├── StateConflict    another run changed the same state value
├── NetworkRefused   the network was tried while a transaction was open
├── LockRefused      the open transaction would hold the locks of a service until its end
├── StepFailed       a step raised; the same on every replay
├── ChildFailed      a child run that this run waited for did not succeed
├── SessionBusy      another run held the session for too long
├── NoReplyPlace     what woke the run has no place to answer; permanent
├── NotConnected     a connection has no token until a person connects it (again); permanent
├── ProviderAway     a connection has no token now, and a step that may not be repeated has begun
└── ApprovalExpired  no decision before the deadline of an approval with on_expiry="fail"
DeclarationError     an agent's declaration is invalid
"""

from datetime import timedelta
from uuid import UUID

from agents.kernel.redaction import stored


class AgentError(Exception):
    pass


class Retry(AgentError):
    """Try this run again, after `after` (a timedelta or seconds; default: the policy's backoff)."""

    def __init__(self, reason: str = "the agent requested a retry", *, after: timedelta | float | None = None) -> None:
        super().__init__(reason)
        self.after = timedelta(seconds=after) if isinstance(after, (int, float)) else after


class Permanent(AgentError):
    """Fail this run now; another attempt would fail the same way."""


class StateConflict(AgentError):
    """Another run changed this state value since it was read; the run is retried."""


class NetworkRefused(AgentError):
    """An open transaction must not wait for the network. Fix: declare an atomic agent with durable=True; give a transactional
    step another effect."""


class LockRefused(AgentError):
    """The body of an atomic agent called a service that takes locks: they would be held until the end of the body."""

    def __init__(self, agent: str, service: str) -> None:
        super().__init__(
            f"agent {agent!r} is atomic: {service}() takes locks, which would block other processes until the end of the "
            f"agent's transaction. Call {service}() after the commit (transaction.on_commit), or in a step of an agent with "
            "durable=True, which an event of this run may wake (run.emit)."
        )


class StepFailed(AgentError):
    """A step raised. `kind` is the name of the exception's class; `permanent`: another attempt would fail the same way."""

    def __init__(self, step: str, kind: str, message: str, *, permanent: bool = False) -> None:
        super().__init__(f"step {step!r} failed: {kind}: {message}")
        self.step = step
        self.kind = kind
        self.message = message
        self.permanent = permanent


class ChildFailed(AgentError):
    """A child run that this run waited for did not succeed; `status` is its last status."""

    def __init__(self, run_id: UUID, status: str, error: str) -> None:
        super().__init__(f"child run {run_id} {status}: {error}")
        self.run_id = run_id
        self.status = status
        self.error = error


class SessionBusy(AgentError):
    """Another run has held the session for longer than WAKEFUL_SESSION_WAIT."""


class NotConnected(Permanent):
    """A connection gives no token until a person connects it, or connects it again."""


class NoReplyPlace(Permanent):
    """What woke this run has no place to answer; the message names the way out."""


class ProviderAway(AgentError):
    """A connection gives no token for the moment: its provider gives none. The step may not be repeated, so it is not a Retry."""


class ApprovalExpired(AgentError):
    """An approval was not decided before its deadline."""


class DeclarationError(Exception):
    """An agent's declaration is invalid; the message names the agent and the fix."""


PERMANENT = (Permanent, NetworkRefused, LockRefused, ChildFailed, ApprovalExpired)


def is_permanent(error: BaseException) -> bool:
    """Would another attempt fail the same way?"""
    return isinstance(error, PERMANENT) or (isinstance(error, StepFailed) and error.permanent)


def describe(error: BaseException) -> str:
    """Class and message of the error as one text that PostgreSQL can store."""
    try:
        said = str(error)
    except Exception as speechless:
        said = f"<str() of the exception failed: {type(speechless).__name__}>"
    return as_text(f"{type(error).__name__}: {said}")[:10_000]


def as_text(text: str) -> str:
    """The text without NUL and unpaired surrogates, which PostgreSQL cannot store, and without secrets."""
    return stored(text).encode(errors="replace").decode().replace("\x00", "�")
