"""
runs.exceptions.IllegalState
├── TriggerDisabled    nothing wakes an agent through this trigger
└── PayloadRemoved     nothing can be woken by this event any more
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
            f"Event {event_id} has lost its payload to retention or erasure: there is nothing to replay.",
            status="payload_removed",
        )
