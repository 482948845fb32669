"""Which subscriptions want an event. Events are matched outside of the transaction that dispatches them, as against triggers, and
costly filters beside the dispatcher."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError

from agents.reserved import is_reserved
from triggers.dispatch.admission import refuse
from triggers.dispatch.costly import PATIENCE, Costly
from triggers.dispatch.expressions import Question
from triggers.dispatch.index import FieldOf, Index, Rule
from triggers.dispatch.match import Case, Matched, Outgoing, bare_match, match_items, wanted_by
from triggers.dispatch.pending import Item
from triggers.models import Decision, Subscription

log = structlog.get_logger(__name__)

MOST = 2_000  # deliveries of one transaction, unless one event has more
LONGEST_ERROR = 2_000  # characters


class Hearing(Index):
    """Subscriptions, indexed like triggers; each also names globs of sources."""

    def __init__(self, rows: Iterable[Subscription] = ()) -> None:
        rows = list(rows)
        self.sources = {row.id: tuple(row.sources) for row in rows}
        super().__init__(
            Rule(id=row.id, slug=row.slug, agent="", types=tuple(row.types), filter=row.filter) for row in rows
        )

    def candidates(self, source: str, type: str, field_of: FieldOf | None = None) -> list[Rule]:
        return [rule for rule in super().candidates(source, type, field_of) if self._hears(rule, source)]

    def _hears(self, rule: Rule, source: str) -> bool:
        globs = self.sources[rule.id]
        return not globs or any(fnmatchcase(source, glob) for glob in globs)


class Subscriptions:
    """The enabled subscriptions. A replay is for triggers alone, and so are events that target one. Events that Wakeful records for
    itself, such as signals, do not leave."""

    def __init__(self, rows: Iterable[Subscription] = ()) -> None:
        self.index = Hearing(rows)

    @classmethod
    def read(cls) -> "Subscriptions":
        return cls(Subscription.objects.filter(enabled=True).only("id", "slug", "sources", "types", "filter"))

    def may_want(self, item: Item) -> bool:
        return bool(self.index.by_id) and not item.is_resumption and not is_reserved(item.type)


def outgoing_cases(item: Item, rules: Sequence[Rule]) -> list[Case]:
    return [
        Case(rule=rule, match=bare_match(item, rule), refusal=None, question=Question(filter=rule.filter))
        for rule in rules
    ]


def match_outgoing(
    matched: Sequence[Matched], subscriptions: Subscriptions, costly: Costly | None = None
) -> list[Matched]:
    """Note on each event which subscriptions want it, as far as that is known: it is partial until the rest is. The events for which
    a transaction has no room are left out, and so are all events after them."""
    asking = [one.item for one in matched if subscriptions.may_want(one.item)]
    if not asking:
        return list(matched)
    found = {one.item.identity: one for one in _found(asking, subscriptions.index, costly)}
    count = 0
    for place, one in enumerate(matched):
        if (answered := found.get(one.item.identity)) is None:
            continue
        outgoing = _outgoing(answered)
        count += len(outgoing)
        if place and count > MOST:
            return list(matched[:place])
        one.outgoing = outgoing
        one.is_partial |= answered.is_partial
        one.may_be_settled |= costly is not None and one.item.identity in costly.known
    return list(matched)


def _found(items: Sequence[Item], index: Index, costly: Costly | None, patience: float = PATIENCE) -> list[Matched]:
    try:
        return costly.match(items, index, patience) if costly else match_items(items, index, outgoing_cases)
    except (OSError, MemoryError, DatabaseError):  # faults of the machine
        raise
    except Exception as error:
        if len(items) > 1:
            return [matched for item in items for matched in _found([item], index, costly, patience=0)]
        # An error of the event's own keeps no trigger from it.
        log.exception("outbound.not_matched", event=str(items[0].event_id))
        cases = outgoing_cases(items[0], wanted_by(items[0], index))
        return [
            Matched(item=items[0], refusals=[refuse(case.match, Decision.Outcome.ERROR, repr(error)) for case in cases])
        ]


def _outgoing(matched: Matched) -> list[Outgoing]:
    """The subscriptions whose filters are true, or raise."""
    loop = _loop(matched.item)
    wanted = [
        _refused(match.rule.id, loop) if loop else Outgoing(subscription_id=match.rule.id) for match in matched.matches
    ]
    why = "its filter cannot be evaluated: "
    return [*wanted, *(_refused(one.trigger_id, why + one.reason) for one in matched.refusals)]


def _loop(item: Item) -> str:
    """Why an event that has come round too often does not leave again; empty: it leaves."""
    most = settings.WAKEFUL_MAX_DEPTH
    return f"its causal chain is {item.depth} deep, WAKEFUL_MAX_DEPTH is {most}" if item.depth > most else ""


def _refused(subscription_id: UUID, why: str) -> Outgoing:
    storable = why.encode(errors="replace").decode().replace("\0", "\ufffd")
    return Outgoing(subscription_id=subscription_id, error=storable[:LONGEST_ERROR])
