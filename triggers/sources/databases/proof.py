"""Whether a server still has the log that was read. One that was restored from a copy of its disk gives the same places to other
changes, and may have grown past the stored one: its number and its timeline are those of before."""

from triggers.sources.databases.place import Place


class SetBack(Exception):
    """The server has other changes at places that are recorded."""


class Proof:
    """Compares what a slot sends from `place.start` on with what was recorded. What was sent last comes first, unless the server knows
    that it is recorded, and behind it nothing up to the place.

    In a crash the server forgets what was confirmed to it since its last checkpoint, so that a slot that stands before the place proves
    nothing.
    """

    def __init__(self, place: Place, confirmed: int) -> None:
        self.last = place.last
        self.until = place.lsn  # before it, nothing but the last is recorded
        self.is_awaited = False
        if place.last and place.last.mark:
            self.until = max(place.lsn, place.last.lsn + 1)
            self.is_awaited = confirmed <= place.last.lsn

    def is_last(self, lsn: int, mark: str) -> bool:
        """Whether this, which the slot has sent, is what was recorded last."""
        if self.last and mark == self.last.mark:
            self.is_awaited = False
            return True
        if self.is_awaited or lsn < self.until:
            raise SetBack
        return False

    def passed(self, lsn: int) -> None:
        """The slot has sent all that it has before this place."""
        if self.is_awaited and lsn >= self.until:
            raise SetBack
