"""How far a slot is read: the position that is stored with the events, and where to go on after a failover or a loss."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from triggers.sources.continuity import Gap, Reason
from triggers.sources.databases.wire import System, lsn_of, lsn_text


@dataclass(frozen=True, kw_only=True)
class Last:
    """What a slot sent last: a transaction, or a message outside of one. From `lsn` to the place up to which the slot is read it sent
    nothing else."""

    publication: str  # which decides what is sent
    lsn: int
    mark: str = ""  # identifies the message; empty: the slot has sent nothing since `lsn`

    @classmethod
    def load(cls, stored: Any) -> Self | None:
        if not isinstance(stored, dict):
            return None
        return cls(publication=stored["publication"], lsn=lsn_of(stored["lsn"]), mark=stored["mark"])

    def dump(self) -> dict[str, Any]:
        return {**asdict(self), "lsn": lsn_text(self.lsn)}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Every transaction that was committed before `lsn` is recorded, and of the one that was committed at `commit` the first `done`
    changes. `snapshot` is how far the rows of the beginning are read; None after them. `last` is not stored with the position but as
    the note of its mark, which earlier versions do not know; None: not known."""

    system: str
    timeline: int
    slot: str
    lsn: int
    commit: int = 0
    done: int = 0
    snapshot: dict[str, Any] | None = None
    last: Last | None = None

    @classmethod
    def load(cls, stored: Any, note: Any = None) -> Self | None:
        if not isinstance(stored, dict):
            return None
        place = {**stored, "lsn": lsn_of(stored["lsn"]), "commit": lsn_of(stored["commit"])}
        return cls(**place, last=Last.load(note))

    def dump(self) -> dict[str, Any]:
        stored = {**asdict(self), "lsn": lsn_text(self.lsn), "commit": lsn_text(self.commit)}
        del stored["last"]
        return stored

    @property
    def start(self) -> int:
        """The place to read from: the server sends its last message again if it still has it, which proves that the log
        is the same.
        """
        return self.last.lsn if self.last else self.lsn

    @property
    def furthest(self) -> int:
        return max(self.lsn, self.commit)


def beginning(now: System, confirmed: int, slot: str, publication: str) -> Place:
    """`confirmed` is the place from which the slot still has all changes."""
    last = Last(publication=publication, lsn=confirmed)
    return Place(system=now.id, timeline=now.timeline, slot=slot, lsn=confirmed, last=last)


def resume(stored: Place | None, fresh: Place, now: System, history: Mapping[int, int]) -> tuple[Place, Gap | None]:
    """The place to continue from, and the changes that may be missing. The slot's own place, `fresh`, is never beyond
    the stored one unless the slot is another, or something else has read it.
    """
    if stored is None or stored.slot != fresh.slot:
        return fresh, None
    is_same_timeline = stored.timeline == now.timeline
    ended = now.lsn if is_same_timeline else history.get(stored.timeline)
    if stored.system != now.id or ended is None:
        said = (
            f"the server is another one than before: it may lack changes, and those that were committed between {lsn_text(stored.lsn)} "
            f"of the old one and {lsn_text(fresh.lsn)} of this one have no events"
        )
        return fresh, _gap(stored, fresh, said)
    was_set_back = stored.lsn > ended or stored.commit >= ended
    if is_same_timeline and (was_set_back or _is_before_beginning(fresh.lsn, stored.last)):
        return fresh, set_back(stored, fresh)
    kept = replace(stored, timeline=now.timeline)
    said = ""
    if was_set_back:
        kept = replace(kept, lsn=min(stored.lsn, ended), commit=0, done=0, last=None)
        said = (
            f"the server failed over to timeline {now.timeline} or was set back: events show changes between {lsn_text(ended)} and "
            f"{lsn_text(stored.furthest)} that it has lost"
        )
    if (
        kept.last and fresh.last and kept.last.publication != fresh.last.publication
    ):  # the new publication may not send the same changes
        kept = replace(kept, last=None)
    place = fresh if fresh.lsn > kept.lsn else kept
    said = "; ".join(part for part in (said, _passed_over(kept, fresh.lsn)) if part)
    return place, _gap(stored, place, said) if said else None


def set_back(stored: Place, fresh: Place) -> Gap:
    """Of a server that no longer has what was recorded, and goes on at `fresh`. Ids have the time of a commit: what is read a second
    time is a duplicate, and another change at the same place is none."""
    said = (
        f"the server was set back, such as to a copy of its disk: events show changes up to {lsn_text(stored.furthest)} that it has "
        f"lost. Its changes from {lsn_text(fresh.lsn)} on are read"
    )
    return replace(_gap(stored, fresh, said), reason=Reason.RESTORED)


def _gap(stored: Place, place: Place, said: str) -> Gap:
    reason = Reason.UNKNOWN if stored.timeline == place.timeline else Reason.RESTORED
    return Gap(stream=place.slot, reason=reason, start=lsn_text(stored.lsn), end=lsn_text(place.lsn), detail=said)


def _is_before_beginning(confirmed: int, last: Last | None) -> bool:
    """Is the slot before the place at which reading began, and nothing has arrived since?"""
    return last is not None and not last.mark and confirmed < last.lsn


def _passed_over(kept: Place, confirmed: int) -> str:
    if confirmed <= kept.lsn:
        return ""
    return (
        f"changes that were committed between {lsn_text(kept.lsn)} and {lsn_text(confirmed)} have no events: the slot was made again, "
        "or something else has read it"
    )


def timeline_at(lsn: int, now: int, history: Mapping[int, int]) -> int:
    """The timeline on which this place was written."""
    return min((timeline for timeline, end in history.items() if lsn < end), default=now)
