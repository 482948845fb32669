"""Finding candidates: by scans of the directory and of new folders, and by the hints of the operating system."""

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from agents.files import FileMetadata
from triggers.sources.files.beginning import Beginning
from triggers.sources.files.candidates import Candidates
from triggers.sources.files.findings import Findings
from triggers.sources.files.hints import Hints
from triggers.sources.files.ledger import Known, Ledger, Path
from triggers.sources.files.tree import Listed, Part, Tree, Unread, changed_at
from triggers.sources.files.watched_directory import WatchedDirectory

log = structlog.get_logger(__name__)

MOST_HINTS = 5000  # at once; a scan is quicker then
MOST_FOLDERS = 100  # new folders that wait to be looked through; else a scan does
MOST_LISTED = 50_000  # folders that a scan remembers; the files of others are compared once more
SCAN_SHARE = 4  # a scan that took a second is followed by a pause of so many


class Scan:
    """Goes on piece by piece: of the whole directory when it is due, else of the folders that are new."""

    def __init__(
        self,
        directory: WatchedDirectory,
        ledger: Ledger,
        beginning: Beginning,
        candidates: Candidates,
        findings: Findings,
        hints: Hints | None,
    ) -> None:
        self.directory, self.settings = directory, directory.settings
        self.ledger, self.beginning, self.candidates, self.findings = ledger, beginning, candidates, findings
        self.hints = hints
        self.running: Iterator[None] | None = None
        self.folders: deque[bytes] = deque()  # to be looked through, such as new ones

    def take_hints(self, seconds: float) -> None:
        if self.hints is None:
            time.sleep(seconds)
            return
        hinted = self.hints.wait(seconds)
        if hinted is None or len(hinted) > MOST_HINTS:
            self.directory.scan_at = 0.0
            return
        now = time.monotonic()
        for relative, is_folder in hinted:
            if is_folder:
                self._take_folder(relative)
            else:
                self._take_file(relative, now)

    def _take_file(self, relative: bytes, now: float) -> None:
        marker = self.settings.marker.encode()
        if marker and relative.endswith(marker):
            relative = relative.removesuffix(marker)
        if self.directory.wants(relative):
            self.candidates.add(Path.of(relative), now)

    def _take_folder(self, relative: bytes) -> None:
        if not self.directory.enters(os.path.basename(relative)):
            return
        if len(self.folders) < MOST_FOLDERS:
            self.folders.append(relative)
        else:
            self.directory.scan_at = 0.0

    def may_go_on(self) -> bool:
        if not self.candidates.have_room(time.monotonic()):
            return False
        if self.running is None:
            if time.monotonic() >= self.directory.scan_at:
                self.running = self._whole()
            elif self.folders:
                self.running = self._look_through(self.folders.popleft())
        return self.running is not None

    def go_on(self) -> None:
        if self.running and next(self.running, self) is self:
            self.running = None

    def until_next(self, wait: float) -> float:
        now = time.monotonic()
        # One that waits for room waits for the candidates.
        scan_at = now + wait if self.running else self.directory.scan_at
        return max(min(wait, self.candidates.next_due() - now, scan_at - now), 0.0)

    def _whole(self) -> Iterator[None]:
        began, is_first = time.monotonic(), not self.directory.position["is_complete"]
        self.folders.clear()
        self.candidates.was_full = False
        if self.beginning.began_at is None:
            yield from self._begin()
        yield from self._look_through(b"")
        if is_first:
            self.directory.position = self.beginning.complete(self.directory.position)
        took = 0.0 if is_first else time.monotonic() - began  # the first one has written them all
        pause = max(self.settings.every_seconds, took * SCAN_SHARE)
        pause = self.settings.settle_seconds if self.candidates.was_full else pause
        self.directory.scan_at = time.monotonic() + pause

    def _begin(self) -> Iterator[None]:
        """Ask the file system what time it is. A file server does not say it, but the last change of a folder has passed there: what came
        after the source was made has changed its folder, so that it is not older than that change by more than the age of the source."""
        with self.directory.open() as tree:
            now = tree.now()
            if now is None:
                last = datetime.min.replace(tzinfo=UTC)

                def opened(_: bytes, fd: int) -> None:
                    nonlocal last
                    last = max(last, changed_at(fd))

                for _ in tree.walk(b"", self.directory.enters, opened):
                    yield
                now = min(last, datetime.now(UTC))  # a stamp may be of the future
                log.warning("source.clock_unknown", directory=self.settings.directory, last_change=now.isoformat())
        self.directory.position = self.beginning.begin(self.directory.position, now)

    def _look_through(self, folder: bytes) -> Iterator[None]:
        """The files of a folder and of those below it; the ledger is queried once for each. Its other files are compared one by one only
        in a folder where some are missing, and in one that was not listed. The new files of a folder come first: a file that was moved
        is there before it counts as gone."""
        listed: set[bytes] = set()
        met: dict[bytes, _Met] = {}
        with self.directory.open() as tree:
            for part in tree.walk(folder, self.directory.enters, self.hints.watch if self.hints else None):
                if isinstance(part, Unread):
                    self.findings.tell(part.folder, part.reason)
                elif isinstance(part, Listed):
                    if len(listed) < MOST_LISTED:
                        listed.add(part.folder)
                    if not met.pop(part.folder, _Met(self.ledger.writes)).are_all(self.ledger, part.folder):
                        yield from self._find_changed_in(tree, part.folder)
                else:
                    here = met.setdefault(part.folder, _Met(self.ledger.writes))
                    here.files += self._find(tree, part)
                yield
            for folders in self.ledger.folders(folder):
                for left in folders:
                    if left not in listed:
                        yield from self._find_changed_in(tree, left)
                yield

    def _find_changed_in(self, tree: Tree, folder: bytes) -> Iterator[None]:
        for page in self.ledger.pages(folder):
            self._find_changed(tree, page)
            yield

    def _find(self, tree: Tree, part: Part) -> int:
        wanted = [path for name in part.names if self.directory.wants((path := Path(part.folder, name)).relative)]
        known = self.ledger.at(wanted)
        now = time.monotonic()
        for path in wanted:
            if was := known.get(path):
                self._compare(tree, was, now)
                continue
            if path in self.candidates or path in self.findings.changes.put:
                continue
            if (metadata := tree.try_metadata(*path)) and self._is_passed_over(path, metadata):
                self.findings.changes.put[path] = Known(path=path, metadata=metadata)
            else:
                self.candidates.add(path, now)
        return len(known)

    def _is_passed_over(self, path: Path, metadata: FileMetadata) -> bool:
        """Whether it was there before the source."""
        if self.directory.position["is_complete"]:
            return False
        return self.beginning.passes_over(path.relative, lambda time: metadata.ctime_ns >= time.timestamp() * 1e9)

    def _find_changed(self, tree: Tree, page: Sequence[Known]) -> None:
        now = time.monotonic()
        for known in page:
            if not self.directory.wants(known.path.relative):
                if self.beginning.may_forget(known.path.relative):
                    self.findings.changes.gone.add(known.path)
                continue
            self._compare(tree, known, now)

    def _compare(self, tree: Tree, known: Known, now: float) -> None:
        try:
            metadata = tree.metadata(*known.path)
        except OSError:
            return  # not known: it has not vanished
        # While there is no room for all new files, one that seems gone may be one of them.
        if (metadata != known.metadata or not known.is_reported) and (metadata or not self.candidates.was_full):
            self.candidates.add(known.path, now)


@dataclass
class _Met:
    """The known files of a folder that were met in it, since so many writes of the ledger."""

    writes: int
    files: int = 0

    def are_all(self, ledger: Ledger, folder: bytes) -> bool:
        """Whether no others of this folder are known. If the ledger has been written meanwhile, that is not known."""
        return self.writes == ledger.writes and self.files == ledger.count(folder)
