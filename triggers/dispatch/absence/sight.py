"""The switches that see an event."""

from triggers.dispatch.absence.switches import Switches
from triggers.dispatch.match import Matched, Sighting

LONGEST_ERROR = 2_000  # characters


def sightings_of(matched: Matched, switches: Switches) -> list[Sighting]:
    """The switches whose rules match, or raise."""
    seen = [
        Sighting(switch=switch, begins=match.rule.id != switch.seen.id, key=match.key or "")
        for match in matched.matches
        if (switch := switches.by_rule.get(match.rule.id))
    ]
    failed = [
        Sighting(switch=switch, begins=refusal.trigger_id != switch.seen.id, error=_storable(refusal.reason))
        for refusal in matched.refusals
        if (switch := switches.by_rule.get(refusal.trigger_id))
    ]
    return [*seen, *failed]


def _storable(text: str) -> str:
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")[:LONGEST_ERROR]
