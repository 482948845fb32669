"""
AgentError
├── Retry            the agent asks for another attempt
├── Permanent        the agent says that no attempt will help
├── StateConflict    another run changed the same state value
└── NetworkRefused   an atomic agent tried to reach the outside
DeclarationError     an agent's declaration makes no sense
"""

from datetime import timedelta


class AgentError(Exception):
    pass


class Retry(AgentError):
    """Try this run again, after `after` (a timedelta or seconds; default: the policy's backoff)."""

    def __init__(self, reason: str = "the agent asked for a retry", *, after: timedelta | float | None = None) -> None:
        super().__init__(reason)
        self.after = timedelta(seconds=after) if isinstance(after, (int, float)) else after


class Permanent(AgentError):
    """Fail this run now; another attempt would fail the same way."""


class StateConflict(AgentError):
    """Another run changed this state value since it was read; the run is retried."""


class NetworkRefused(AgentError):
    """An atomic agent's transaction is open, so it must not wait for the network. Declare the agent with durable=True."""


class DeclarationError(Exception):
    """An agent's declaration makes no sense; the message names the agent and the fix."""
