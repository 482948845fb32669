"""
runs.exceptions.IllegalState
├── TriggerDisabled    the trigger is disabled
├── PayloadRemoved     the event has lost its payload
└── NotWanted          the trigger does not match the event today
"""

from uuid import UUID

from runs.exceptions import IllegalState


class TriggerDisabled(IllegalState):
    """The trigger starts no runs until it is enabled."""

    def __init__(self, slug: str) -> None:
        super().__init__(f"Trigger {slug} is disabled. Enable it in the console first.", status="disabled")


class PayloadRemoved(IllegalState):
    """The event has no payload, so it cannot be dispatched again."""

    def __init__(self, event_id: UUID) -> None:
        super().__init__(
            f"Event {event_id} has lost its payload to retention or erasure, so it cannot be run again.",
            status="payload_removed",
        )


class NotWanted(IllegalState):
    """The trigger does not match the event today; the message gives the reason."""

    def __init__(self, slug: str, why: str) -> None:
        super().__init__(f"Trigger {slug} does not match the event today: {why}.", status="not_wanted")


class RuleError(ValueError):
    """An invalid rule or policy; the message names the wrong part and the fix, `field` the column."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class Invalid(ValueError):
    """Invalid input; each of the `problems` names a field and its fix."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))
