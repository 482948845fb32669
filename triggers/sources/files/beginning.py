"""Where a source of files begins, and whether its ledger belongs to another place.

The first complete scan is the beginning: what it does not find, and what comes after it, is never passed over, whatever the clocks.
Of what it finds, only that is passed over which is more than a tick older than the source, by the clock of the file system, which may
be far from every other one: the reader provides the time there, and the database provides how long ago that was.
Where that time cannot be known, the reader returns one that has passed there: then a file that is a little older than the
source may count as new, and none that is younger is lost.

Another selection begins again in the same way, with the files that are known. What a former selection wanted is new as before: it may
be a file that had not settled, or came since the last scan.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import F
from django.db.models.functions import Now

from triggers.models import Source
from triggers.sources.files.selection import Selection
from triggers.sources.polling.poller import ALL
from triggers.sources.runner import Assignment

# The kernel stamps files by a coarse clock, which may be a tick behind the clock that gives the current time.
TICK = timedelta(seconds=1)
MOST_FORMER = 20  # selections before one scan is complete; with more, the oldest counts as wanting everything


@dataclass(frozen=True, kw_only=True)
class Former:
    """A selection before the present one, and the beginning it had not come past; None: its first scan was complete."""

    selection: Selection | None  # None: not known, it may have wanted everything
    began_at: datetime | None

    @classmethod
    def load(cls, stored: dict[str, Any]) -> "Former":
        wants, began_at = stored["wants"], stored["began_at"]
        return cls(
            selection=Selection(**wants) if wants else None,
            began_at=datetime.fromisoformat(began_at) if began_at else None,
        )

    def wants(self, relative: bytes) -> bool:
        return self.selection is None or self.selection.wants(relative)


class Beginning:
    """`position` is stored with the events; `is_of_other`: the ledger is that of another place, and must be forgotten before."""

    def __init__(self, assignment: Assignment[Any], place: str, selection: Selection, begin_with: str) -> None:
        if assignment.source_id is None:
            raise ValueError("files are read for the row of a source")
        stored = assignment.position or {}
        self.begin_with = begin_with
        self.is_of_other = bool(stored) and stored["place"] != place
        self.position = dict(stored)
        self.age = timedelta()  # at `made_at`, by the monotonic clock
        self.made_at = time.monotonic()
        if not stored or self.is_of_other or stored["selection"] != selection.digest:
            self.age = timedelta() if stored else _age_of(assignment.source_id)
            kept = {} if self.is_of_other else stored
            self.position = {name: one for name, one in kept.items() if name not in ("after", "began_at")}
            self.position |= {"is_complete": False, "former": _former(kept)}
        self.position |= {"place": place, "selection": selection.digest, "wants": selection.fields}
        self.began_at: datetime | None = None
        if "began_at" in self.position:
            self.began_at = datetime.fromisoformat(self.position["began_at"])
        self.former = [Former.load(one) for one in self.position.get("former", [])]

    def begin(self, position: dict[str, Any], now: datetime) -> dict[str, Any]:
        """The position before the first scan; `now`: by the clock of the files, or a time that has passed there."""
        self.began_at = now - self.age - timedelta(seconds=time.monotonic() - self.made_at) - TICK
        return {**position, "began_at": self.began_at.isoformat()}

    def passes_over(self, relative: bytes, changed_at: Callable[[datetime], bool]) -> bool:
        """Whether an unknown file existed before the source; `changed_at`: whether it changed at this time or later."""
        if self.began_at is None:
            raise ValueError("the first scan has no beginning")
        if self.begin_with == ALL or changed_at(self.began_at):
            return False
        return not any(one.began_at is None or changed_at(one.began_at) for one in self.former if one.wants(relative))

    def may_forget(self, relative: bytes) -> bool:
        """Whether a known file that does not count may leave the ledger: not while the edit may be taken back."""
        return not any(one.wants(relative) for one in self.former)

    def complete(self, position: dict[str, Any]) -> dict[str, Any]:
        """The position after the first scan."""
        self.former = []
        return {**position, "is_complete": True, "former": []}


def _age_of(source_id: UUID) -> timedelta:
    age: timedelta = Source.objects.values_list(Now() - F("created_at"), flat=True).get(pk=source_id)
    return max(age, timedelta())  # the clock of the database may have been set back since


def _former(stored: dict[str, Any]) -> list[dict[str, Any]]:
    """The selections before the present one, as they are stored."""
    if not stored:
        return []
    wants = stored.get("wants")
    # A version that stored the digest alone does not say what was wanted: then what changed since its beginning is new.
    began_at = "" if stored["is_complete"] and wants else stored["began_at"]
    former = [*stored.get("former", []), {"wants": wants, "began_at": began_at}]
    if len(former) > MOST_FORMER:
        former = [{"wants": None, "began_at": former[0]["began_at"] or stored["began_at"]}, *former[-MOST_FORMER:]]
    return former
