"""Files that may have changed, until they are settled: they look the same for a given time."""

from dataclasses import dataclass

from agents.files import FileMetadata
from triggers.sources.files.ledger import Path
from triggers.sources.files.tree import AT_ONCE

MOST = 10_000  # a scan waits while there is no room; what a hint finds then, the next scan finds
WAITS_AT_MOST = 60.0  # seconds; files that never settle must not stop it for ever


@dataclass(kw_only=True, slots=True)
class Candidate:
    """Has had this `metadata` since it was first judged; judged again at `due`."""

    due: float
    is_seen: bool = False
    metadata: FileMetadata | None = None


class Candidates:
    def __init__(self) -> None:
        self.waiting: dict[Path, Candidate] = {}
        self.was_full = False  # since a scan began
        self.full_since: float | None = None

    def __len__(self) -> int:
        return len(self.waiting)

    def __contains__(self, path: Path) -> bool:
        return path in self.waiting

    def have_room(self, now: float) -> bool:
        """Whether there is room for a scan to continue."""
        if len(self) + AT_ONCE <= MOST:
            self.full_since = None
            return True
        self.full_since = self.full_since or now
        return now - self.full_since > WAITS_AT_MOST

    def add(self, path: Path, now: float) -> None:
        if len(self) >= MOST:
            self.was_full = True
        else:
            self.waiting.setdefault(path, Candidate(due=now))

    def drop(self, path: Path) -> None:
        self.waiting.pop(path, None)

    def due(self, now: float, most: int) -> list[Path]:
        """The candidates that are due, by folder."""
        found = sorted((one.due, path) for path, one in self.waiting.items() if one.due <= now)
        return sorted(path for _, path in found[:most])

    def next_due(self) -> float:
        return min((one.due for one in self.waiting.values()), default=float("inf"))

    def settles(self, path: Path, metadata: FileMetadata | None, *, now: float, seconds: float) -> bool:
        """Whether the file has been unchanged for these seconds; else it becomes due again after them."""
        one = self.waiting[path]
        if seconds <= 0 or one.is_seen and one.metadata == metadata:
            return True
        self.waiting[path] = Candidate(due=now + seconds, is_seen=True, metadata=metadata)
        return False
