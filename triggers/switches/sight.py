"""The switches that see an event."""

from uuid import UUID

from triggers.matching.index import Rule
from triggers.matching.match import Matched, Sighting
from triggers.matching.pending import Item
from triggers.switches.switch import CLOSED, OPENED, Switch
from triggers.switches.switches import Switches

LONGEST_ERROR = 2_000  # characters
OF_SWITCHES = "absence."  # the beginning of the types of their events


def sightings_of(matched: Matched, switches: Switches) -> list[Sighting]:
    """The switches whose rules match, or raise."""
    seen = [
        Sighting(switch=switch, begins=match.rule.id != switch.seen.id, key=match.key or "")
        for match in matched.matches
        if (switch := switches.by_rule.get(match.rule.id)) and _counts(matched.item, match.rule, switch)
    ]
    failed = [
        Sighting(switch=switch, begins=refusal.trigger_id != switch.seen.id, error=_storable(refusal.reason))
        for refusal in matched.refusals
        if (switch := switches.by_rule.get(refusal.trigger_id))
        and _counts(matched.item, _rule_of(switch, refusal.trigger_id), switch)
    ]
    return [*seen, *failed]


def _counts(item: Item, rule: Rule, switch: Switch) -> bool:
    """Whether the switch counts the event. Absence events are no sign of life: a switch does not see its own, and those
    of others only if its types name them.
    """
    if item.type not in (OPENED, CLOSED):
        return True
    return item.source != switch.slug and any(type.startswith(OF_SWITCHES) for type in rule.types)


def _rule_of(switch: Switch, id: UUID) -> Rule:
    return next(rule for rule in switch.rules if rule.id == id)


def _storable(text: str) -> str:
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")[:LONGEST_ERROR]
