"""What a trigger wakes on, in words."""

from triggers.models import Trigger
from triggers.schedules.preview import describe


def in_words(trigger: Trigger) -> str:
    """The events it matches, e.g. “invoice.* from stripe, where event.data.amount > 100”."""
    clocks = [describe(schedule) for schedule in trigger.schedules.all()]
    if not trigger.types:
        return "; ".join(clocks) or "only by hand"
    events = ", ".join("any event" if type_ == "*" else type_ for type_ in trigger.types)
    source = f" from {trigger.source}" if trigger.source else ""
    condition = f", where {trigger.filter}" if trigger.filter else ""
    return "; ".join([f"{events}{source}{condition}", *clocks])
