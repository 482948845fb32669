"""How far a slot is read: the position that is stored with the events, and where to go on after a failover or a loss."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from triggers.sources.databases.wire import System, lsn_of, lsn_text


@dataclass(frozen=True, kw_only=True)
class Place:
    """Every transaction that was committed before `lsn` is recorded, and of the one that was committed at `commit` the first `done`
    changes. `snapshot` is how far the rows of the beginning are read; None after them."""

    system: str
    timeline: int
    slot: str
    lsn: int
    commit: int = 0
    done: int = 0
    snapshot: dict[str, Any] | None = None

    @classmethod
    def load(cls, stored: Any) -> Self | None:
        if not isinstance(stored, dict):
            return None
        return cls(**{**stored, "lsn": lsn_of(stored["lsn"]), "commit": lsn_of(stored["commit"])})

    def dump(self) -> dict[str, Any]:
        return {**asdict(self), "lsn": lsn_text(self.lsn), "commit": lsn_text(self.commit)}


def resume(
    stored: Place | None, now: System, history: Mapping[int, int], confirmed: int, slot: str
) -> tuple[Place, str]:
    """Where to go on, and what may be missing. `confirmed` is the place from which the slot still has all changes; it is never
    beyond the stored one unless the slot is another, or something else has read it."""
    fresh = Place(system=now.id, timeline=now.timeline, slot=slot, lsn=confirmed)
    if stored is None or stored.slot != slot:
        return fresh, ""
    ended = now.lsn if stored.timeline == now.timeline else history.get(stored.timeline)
    if stored.system != now.id or ended is None:
        return fresh, (
            f"the server is another one than before: it may lack changes, and those that were committed between {lsn_text(stored.lsn)} "
            f"of the old one and {lsn_text(confirmed)} of this one have no events"
        )
    if stored.lsn > ended or stored.commit >= ended:
        furthest = max(stored.lsn, stored.commit)
        kept = replace(stored, timeline=now.timeline, lsn=min(stored.lsn, ended), commit=0, done=0)
        return _behind(kept, fresh), (
            f"the server failed over to timeline {now.timeline} or was set back: events tell of changes between {lsn_text(ended)} and "
            f"{lsn_text(furthest)} that it has lost" + _said(kept, confirmed)
        )
    kept = replace(stored, timeline=now.timeline)
    return _behind(kept, fresh), _said(kept, confirmed).removeprefix("; ")


def _behind(kept: Place, fresh: Place) -> Place:
    return fresh if fresh.lsn > kept.lsn else kept


def _said(kept: Place, confirmed: int) -> str:
    if confirmed <= kept.lsn:
        return ""
    return (
        f"; changes that were committed between {lsn_text(kept.lsn)} and {lsn_text(confirmed)} have no events: the slot was made again, "
        "or something else has read it"
    )


def timeline_at(lsn: int, now: int, history: Mapping[int, int]) -> int:
    """The timeline on which this place was written."""
    return min((timeline for timeline, end in history.items() if lsn < end), default=now)
