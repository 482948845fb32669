"""Which subscriptions want an event. Events are matched outside of the transaction that dispatches them, as against triggers."""

import time
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import structlog
from django.conf import settings
from django.db import DatabaseError

from agents.reserved import is_reserved
from triggers.dispatch.admission import Refusal
from triggers.dispatch.expressions import Question
from triggers.dispatch.index import Index, Rule
from triggers.dispatch.match import Case, Matched, Outgoing, bare_match, decide, needs_payload, wanted_by
from triggers.dispatch.payload import NOTHING, Payload, read_payloads
from triggers.dispatch.pending import Item
from triggers.models import Subscription

log = structlog.get_logger(__name__)

BATCH_SECONDS = 2.0  # of matching, after which costly events wait for the next batch
MOST = 2_000  # deliveries of one transaction, unless one event has more
LONGEST_ERROR = 2_000  # characters


class Subscriptions:
    """The enabled subscriptions, indexed like triggers. A replay is for triggers alone, and so are events that target one. Events
    that Wakeful records for itself, such as signals, do not leave."""

    def __init__(self, rows: Iterable[Subscription] = ()) -> None:
        rows = list(rows)
        self.sources = {row.id: tuple(row.sources) for row in rows}
        self.index = Index(
            Rule(id=row.id, slug=row.slug, agent="", types=tuple(row.types), filter=row.filter) for row in rows
        )

    @classmethod
    def read(cls) -> "Subscriptions":
        return cls(Subscription.objects.filter(enabled=True).only("id", "slug", "sources", "types", "filter"))

    def listening(self, item: Item, payload: Payload) -> list[Rule]:
        if not self.sources or item.is_resumption or is_reserved(item.type):
            return []
        return [rule for rule in wanted_by(item, self.index, payload) if self._hears(rule, item.source)]

    def _hears(self, rule: Rule, source: str) -> bool:
        globs = self.sources[rule.id]
        return not globs or any(fnmatchcase(source, glob) for glob in globs)


def match_outgoing(
    matched: Sequence[Matched], subscriptions: Subscriptions, seconds: float = BATCH_SECONDS
) -> list[Matched]:
    """Note on each event which subscriptions want it. The events for which there is no more time or room are left out, and so are
    all events after them."""
    if not subscriptions.sources:
        return list(matched)
    asking = [one.item.event_id for one in matched if needs_payload(one.item, subscriptions.index)]
    payloads = read_payloads(asking)
    until, count = time.monotonic() + seconds, 0
    for place, one in enumerate(matched):
        payload = payloads.get(one.item.event_id, NOTHING)
        cases = [_case(one.item, rule) for rule in subscriptions.listening(one.item, payload)]
        is_late = time.monotonic() > until and any(case.is_costly(payload) for case in cases)
        if place and (is_late or count + len(cases) > MOST):
            return list(matched[:place])
        one.outgoing = _wanting(one.item, cases, payload)
        count += len(one.outgoing)
    return list(matched)


def _case(item: Item, rule: Rule) -> Case:
    return Case(rule=rule, match=bare_match(item, rule), refusal=None, question=Question(filter=rule.filter))


def _wanting(item: Item, cases: Sequence[Case], payload: Payload) -> list[Outgoing]:
    """The subscriptions whose filters are true, or raise. An error of the event's own keeps no trigger from it."""
    try:
        results = decide(item, cases, payload)
    except (OSError, MemoryError, DatabaseError):  # faults of the machine
        raise
    except Exception as error:
        log.exception("outbound.not_matched", event=str(item.event_id))
        return [_refused(case.rule, repr(error)) for case in cases]
    found = []
    for case, result in zip(cases, results, strict=True):
        if isinstance(result, Refusal):
            found.append(_refused(case.rule, f"its filter cannot be evaluated: {result.reason}"))
        elif result is not None:
            found.append(_refused(case.rule, loop) if (loop := _loop(item)) else Outgoing(subscription_id=case.rule.id))
    return found


def _loop(item: Item) -> str:
    """Why an event that has come round too often does not leave again; empty: it leaves."""
    most = settings.WAKEFUL_MAX_DEPTH
    return f"its causal chain is {item.depth} deep, WAKEFUL_MAX_DEPTH is {most}" if item.depth > most else ""


def _refused(rule: Rule, why: str) -> Outgoing:
    storable = why.encode(errors="replace").decode().replace("\0", "\ufffd")
    return Outgoing(subscription_id=rule.id, error=storable[:LONGEST_ERROR])
