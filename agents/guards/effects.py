"""An agent's effects must be JSON that PostgreSQL can store."""

from agents.guards.storable import storable
from agents.kernel.effects import Effects


def check_effects(effects: Effects) -> None:
    """Raise Permanent if an effect cannot be stored."""
    for emission in effects.emissions:
        storable([emission.subject, emission.data], f"the emitted event {emission.type!r}")
    for wake in effects.wakes:
        storable([wake.reason, wake.data], "the data of wake_in")
    for pace in effects.paces[-1:]:
        storable(pace.reason, "the reason of next_check")
    for notice in effects.notices:
        storable([notice.text, notice.topic, notice.link, *notice.to], "its notification")
    for reply in effects.replies:
        storable(reply.text, "its reply")
    for child in effects.children:
        storable(child.input, f"the input of a child, {child.agent!r},")
