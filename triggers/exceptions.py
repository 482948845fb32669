"""
runs.exceptions.IllegalState
└── TriggerDisabled    nothing wakes an agent through this trigger
"""

from runs.exceptions import IllegalState


class TriggerDisabled(IllegalState):
    """Nothing wakes an agent through this trigger until it is enabled."""

    def __init__(self, slug: str) -> None:
        super().__init__(f"Trigger {slug} is disabled. Enable it in the admin first.", status="disabled")
