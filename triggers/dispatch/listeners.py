"""Match events against subscriptions and switches. Like matching against triggers, this happens outside of the
transaction that dispatches the events, and costly expressions run in parallel to the dispatcher.
"""

from collections.abc import Sequence

import structlog
from django.db import DatabaseError

from agents.kernel.reserved_types import FINISHED, is_reserved
from triggers.matching.expressions.cel import Question
from triggers.matching.index import FieldOf, Index, Listeners, Rule
from triggers.matching.match import Case, Matched, bare_match, match_items, wanted_by
from triggers.matching.matches import refuse
from triggers.matching.pending import Item
from triggers.matching.slow_lane import PATIENCE, Costly
from triggers.models import Decision
from triggers.outbound.match import Subscriptions, outgoing_of
from triggers.switches.sight import sightings_of
from triggers.switches.switches import Switches

log = structlog.get_logger(__name__)

MOST = 2_000  # deliveries of one transaction, unless one event has more


class ListenerIndex(Index):
    """Subscriptions and switches in one index."""

    def __init__(self, subscriptions: Subscriptions, switches: Switches) -> None:
        self.subscriptions, self.switches = subscriptions, switches
        self.parts: tuple[Index, ...] = (subscriptions.index, switches.index)
        self.by_id = {id: rule for part in self.parts for id, rule in part.by_id.items()}

    def listeners(self, source: str, type: str) -> list[Listeners]:
        return [heard for part in self.parts for heard in part.listeners(source, type)]

    def candidates(self, source: str, type: str, field_of: FieldOf | None = None) -> list[Rule]:
        return [rule for part in self.parts for rule in part.candidates(source, type, field_of)]

    def may_want(self, item: Item) -> bool:
        """Whether subscriptions and switches may match the item. Replays and events that target a trigger are for
        triggers only; so are events that Wakeful records for itself, such as signals, but for reports of runs.
        """
        is_own = is_reserved(item.type) and item.type != FINISHED
        return bool(self.by_id) and not item.is_resumption and not is_own


def cases_of_listeners(item: Item, rules: Sequence[Rule]) -> list[Case]:
    return [
        Case(rule=rule, match=bare_match(item, rule), refusal=None, question=Question(filter=rule.filter, key=rule.key))
        for rule in rules
    ]


def match_listeners(matched: Sequence[Matched], index: ListenerIndex, costly: Costly | None = None) -> list[Matched]:
    """Add to each event the subscriptions and switches that match it, as far as they are known; until all are, the
    event is partial. Events for which a transaction has no room are left out, and so are all events after them.
    """
    asking = [one.item for one in matched if index.may_want(one.item)]
    if not asking:
        return list(matched)
    found = {one.item.identity: one for one in _found(asking, index, costly)}
    count = 0
    for place, one in enumerate(matched):
        if (answered := found.get(one.item.identity)) is None:
            continue
        outgoing = outgoing_of(answered, index.subscriptions)
        count += len(outgoing)
        if place and count > MOST:
            return list(matched[:place])
        one.outgoing, one.sightings = outgoing, sightings_of(answered, index.switches)
        one.is_partial |= answered.is_partial
        one.may_be_settled |= costly is not None and one.item.identity in costly.known
    return list(matched)


def _found(
    items: Sequence[Item], index: ListenerIndex, costly: Costly | None, patience: float = PATIENCE
) -> list[Matched]:
    try:
        return costly.match(items, index, patience) if costly else match_items(items, index, cases_of_listeners)
    except (OSError, MemoryError, DatabaseError):  # faults of the machine, not of the event
        raise
    except Exception as error:
        if len(items) > 1:
            return [matched for item in items for matched in _found([item], index, costly, patience=0)]
        # An error of a subscription or switch does not keep triggers from the event.
        log.exception("dispatch.others_not_matched", event=str(items[0].event_id))
        cases = cases_of_listeners(items[0], wanted_by(items[0], index))
        return [
            Matched(item=items[0], refusals=[refuse(case.match, Decision.Outcome.ERROR, repr(error)) for case in cases])
        ]
