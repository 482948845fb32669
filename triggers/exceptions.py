"""
runs.exceptions.IllegalState
├── TriggerDisabled    nothing wakes an agent through this trigger
├── PayloadRemoved     nothing can be woken by this event any more
└── NotWanted          by today's rules the trigger would not wake on the event
"""

from uuid import UUID

from runs.exceptions import IllegalState


class TriggerDisabled(IllegalState):
    """Nothing wakes an agent through this trigger until it is enabled."""

    def __init__(self, slug: str) -> None:
        super().__init__(f"Trigger {slug} is disabled. Enable it in the admin first.", status="disabled")


class PayloadRemoved(IllegalState):
    """What the event said is gone: nothing can be woken by it any more."""

    def __init__(self, event_id: UUID) -> None:
        super().__init__(
            f"Event {event_id} has lost its payload to retention or erasure: there is nothing to run again.",
            status="payload_removed",
        )


class NotWanted(IllegalState):
    """By today's rules the trigger would not wake on the event; says why."""

    def __init__(self, slug: str, why: str) -> None:
        super().__init__(f"Today trigger {slug} would not wake on it: {why}.", status="not_wanted")


class RuleError(ValueError):
    """A rule makes no sense; the message says which part of it and what to write instead, `field` which column it is of."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class Invalid(ValueError):
    """What is to be written makes no sense; each of the `problems` names a field and its fix."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))
