"""The subscriptions that want an event."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from uuid import UUID

from django.conf import settings

from triggers.matching.index import FieldOf, Index, Rule
from triggers.matching.match import Matched, Outgoing
from triggers.matching.pending import Item
from triggers.models import Subscription

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
        return [rule for rule in super().candidates(source, type, field_of) if self._is_from(rule, source)]

    def _is_from(self, rule: Rule, source: str) -> bool:
        globs = self.sources[rule.id]
        return not globs or any(fnmatchcase(source, glob) for glob in globs)


class Subscriptions:
    """The enabled subscriptions."""

    def __init__(self, rows: Iterable[Subscription] = ()) -> None:
        self.index = Hearing(rows)

    @classmethod
    def read(cls) -> "Subscriptions":
        return cls(Subscription.objects.filter(enabled=True).only("id", "slug", "sources", "types", "filter"))


def outgoing_of(matched: Matched, subscriptions: Subscriptions) -> list[Outgoing]:
    """The subscriptions whose filters are true, or raise."""
    ours, loop = subscriptions.index.sources, _loop(matched.item)
    wanted = [
        _refused(match.rule.id, loop) if loop else Outgoing(subscription_id=match.rule.id)
        for match in matched.matches
        if match.rule.id in ours
    ]
    why = "its filter cannot be evaluated: "
    failed = [_refused(one.trigger_id, why + one.reason) for one in matched.refusals if one.trigger_id in ours]
    return [*wanted, *failed]


def _loop(item: Item) -> str:
    """Why an event that has come round too often does not leave again; empty: it leaves."""
    most = settings.WAKEFUL_MAX_DEPTH
    return f"its causal chain is {item.depth} deep, WAKEFUL_MAX_DEPTH is {most}" if item.depth > most else ""


def _refused(subscription_id: UUID, why: str) -> Outgoing:
    storable = why.encode(errors="replace").decode().replace("\0", "\ufffd")
    return Outgoing(subscription_id=subscription_id, error=storable[:LONGEST_ERROR])
