"""Divide the events of a batch into parts that several processes dispatch at once (`triggers.dispatch.shards`).

Events that share a concurrency key stay together and in order. An event goes to a part only if nothing but its keys counts for it: it is
new, all its triggers are known and take it at once, none of them counts events (a rate, a window, a loop) or replaces runs, no switch
watches it, and no run waits for it. The rest, with all events that share a key with it, is dispatched by the leader alone.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass, field
from uuid import UUID

from triggers.matching.match import Matched
from triggers.matching.matches import Match
from triggers.models import Trigger


@dataclass(frozen=True, kw_only=True)
class Divided:
    """The parts and the rest, each in the order of the batch."""

    parts: list[list[Matched]] = field(default_factory=list)
    rest: list[Matched]


def divide(matched: Sequence[Matched], awaited: Set[UUID], *, most: int, least: int) -> Divided:
    """At most `most` parts, of at least `least` events on average; none for too few events. `awaited`: events that runs wait for."""
    movable = [
        cluster
        for cluster in _clusters(matched)
        if all(is_plain(matched[place]) and matched[place].item.event_id not in awaited for place in cluster)
    ]
    count = min(most, sum(map(len, movable)) // least, len(movable))
    if count < 2:
        return Divided(rest=list(matched))
    parts: list[list[int]] = [[] for _ in range(count)]
    for cluster in sorted(movable, key=len, reverse=True):
        min(parts, key=len).extend(cluster)
    moved = {place for part in parts for place in part}
    return Divided(
        parts=[[matched[place] for place in sorted(part)] for part in parts],
        rest=[one for place, one in enumerate(matched) if place not in moved],
    )


def is_plain(one: Matched) -> bool:
    """Whether nothing but its keys counts for the event."""
    is_whole = not (one.is_partial or one.later or one.blocks or one.behind or one.refusals or one.sightings)
    return is_whole and not (one.item.is_resumption or one.item.backfill) and all(map(_is_plain, one.matches))


def _is_plain(match: Match) -> bool:
    return not (match.rule.intake.needs_group or match.loop or match.rule.overlap == Trigger.Overlap.CANCEL_PREVIOUS)


def _clusters(matched: Sequence[Matched]) -> list[list[int]]:
    """The places of events that share a key, directly or through other events."""
    above: dict[str, str] = {}

    def top(key: str) -> str:
        while (next_key := above.setdefault(key, key)) != key:
            above[key] = key = above[next_key]
        return key

    keys = [list(one.keys) for one in matched]
    for own in keys:
        for other in own[1:]:
            above[top(other)] = top(own[0])
    clusters = defaultdict[Hashable, list[int]](list)
    for place, own in enumerate(keys):
        clusters[top(own[0]) if own else place].append(place)
    return list(clusters.values())
