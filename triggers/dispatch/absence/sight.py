"""Which switches see an event. Events are matched outside of the transaction that dispatches them, as against triggers."""

import time
from collections.abc import Sequence

import structlog
from django.db import DatabaseError

from agents.reserved import is_reserved
from triggers.dispatch.absence.switch import Switch
from triggers.dispatch.absence.switches import Switches
from triggers.dispatch.expressions import Answer, Question
from triggers.dispatch.match import Case, Matched, Sighting, answers_of, bare_match, needs_payload, wanted_by
from triggers.dispatch.payload import NOTHING, Payload, read_payloads
from triggers.dispatch.pending import Item

log = structlog.get_logger(__name__)

BATCH_SECONDS = 2.0  # of costly matching, after which costly events wait for the next batch
LONGEST_ERROR = 2_000  # characters


def match_switches(matched: Sequence[Matched], switches: Switches, seconds: float = BATCH_SECONDS) -> list[Matched]:
    """Note on each event which switches see it. The events for which there is no more time are left out, and so are all events
    after them: the order of events decides."""
    if not switches.by_id:
        return list(matched)
    asking = [one.item.event_id for one in matched if needs_payload(one.item, switches.index)]
    payloads = read_payloads(asking)
    until = time.monotonic() + seconds
    for place, one in enumerate(matched):
        payload = payloads.get(one.item.event_id, NOTHING)
        cases = _cases(one.item, switches, payload)
        if place and time.monotonic() > until and any(case.is_costly(payload) for case in cases):
            return list(matched[:place])
        one.sightings = _sightings(one.item, cases, payload, switches)
    return list(matched)


def _cases(item: Item, switches: Switches, payload: Payload) -> list[Case]:
    # A replay happened before, and what Wakeful records for itself is no event of the world.
    if item.is_resumption or item.target_id or is_reserved(item.type):
        return []
    return [
        Case(rule=rule, match=bare_match(item, rule), refusal=None, question=Question(filter=rule.filter, key=rule.key))
        for rule in wanted_by(item, switches.index, payload)
    ]


def _sightings(item: Item, cases: Sequence[Case], payload: Payload, switches: Switches) -> list[Sighting]:
    """An error of the event's own keeps no trigger from it."""
    if not cases:
        return []
    try:
        answers = answers_of(item, cases, payload)
    except (OSError, MemoryError, DatabaseError):  # faults of the machine
        raise
    except Exception as error:
        log.exception("absence.not_matched", event=str(item.event_id))
        answers = [Answer(error=repr(error))] * len(cases)
    return [
        _sighting(switches.by_rule[case.rule.id], case, answer)
        for case, answer in zip(cases, answers, strict=True)
        if answer.passes or answer.error
    ]


def _sighting(switch: Switch, case: Case, answer: Answer) -> Sighting:
    begins = case.rule.id != switch.seen.id
    return Sighting(switch=switch, begins=begins, key=answer.key, error=_storable(answer.error))


def _storable(text: str) -> str:
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")[:LONGEST_ERROR]
