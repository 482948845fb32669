"""Looks at a directory: a scan finds candidates, and each is judged by how it looks now and how it was recorded."""

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog
from django.conf import settings
from django.db import connection

from agents.files import Look, fingerprint_of, is_beneath
from triggers.sources.files.beginning import Beginning
from triggers.sources.files.candidates import Candidates
from triggers.sources.files.hints import Hints
from triggers.sources.files.ledger import Changes, Known, Ledger, Path
from triggers.sources.files.report import CHANGED, CREATED, RENAMED, VANISHED, event_of
from triggers.sources.files.tree import Part, Tree, Unread, changed_at
from triggers.sources.runner import BATCH, Assignment, Batch, Poison, Reader, Received, SourceError

if TYPE_CHECKING:
    from triggers.sources.files.directory import DirectorySettings

log = structlog.get_logger(__name__)

WORK_SECONDS = 5.0  # of one read
HASH_SECONDS = 30.0  # for the content of one file
MOST_CHANGES = 2000  # rows of the ledger in one batch
MOST_HINTS = 5000  # at once; a scan is quicker then
MOST_FOLDERS = 100  # new folders that wait to be looked through; else a scan does
MOST_TOLD = 1000  # folders and names that cannot be read, told once each
LONGEST_PATH = 2000  # bytes, for the index of the ledger
VANISHED_FOR = 1.0  # seconds at least; a file that is replaced is missing for a moment
SCAN_SHARE = 4  # a scan that took a second is followed by a pause of so many
NO_PATH = f"its path below the directory has more than {LONGEST_PATH} bytes"


@dataclass(kw_only=True)
class Found:
    """What one read has found: the messages of a batch, and the rows that change with them."""

    messages: list[Received | Poison] = field(default_factory=list)
    changes: Changes = field(default_factory=Changes)

    @property
    def is_full(self) -> bool:
        return len(self.messages) >= BATCH or len(self.changes) >= MOST_CHANGES


class DirectoryReader(Reader):
    def __init__(self, assignment: "Assignment[DirectorySettings]") -> None:
        self.settings = assignment.settings
        self.selection = assignment.settings.selection
        self.path = os.fsencode(assignment.settings.directory)
        self.ledger = Ledger(assignment.source_id)
        self.candidates = Candidates()
        self.found = Found()
        self.scan: Iterator[None] | None = None
        self.scan_at = 0.0
        self.folders: deque[bytes] = deque()  # to be looked through, such as new ones
        self.told: set[bytes] = set()
        self.lag: int | None = None
        self.beginning = Beginning(
            assignment, self.settings.directory, self.selection, begin_with=self.settings.begin_with
        )
        self.position, self.is_of_other = self.beginning.position, self.beginning.is_of_other
        self.stored = assignment.position
        self.hints = Hints.begin() if self.settings.has_hints else None
        try:
            self._tree().close()
        except BaseException:
            if self.hints:
                self.hints.close()
            raise

    # The contract of a reader

    def read(self, wait: float) -> Batch:
        until = time.monotonic() + WORK_SECONDS
        if self.is_of_other:
            self._forget_other()
            return self._batch()
        with self._tree() as tree:
            self._take_hints(0)
            self._judge(tree, until)
            has_scanned = self._may_scan()
            while not self.found.is_full and time.monotonic() < until and self._may_scan():
                self._scan_on()
            # After a scan it returns at once: while it waits, it holds no connection to the database.
            if not (has_scanned or self.found.messages or self.found.changes or self._may_scan()):
                self._take_hints(self._until_next(wait))
        return self._batch()

    def stay(self) -> None:
        if self.hints and len(self.candidates) < MOST_HINTS:
            self._take_hints(0)

    def close(self) -> None:
        self.scan = None
        if self.hints:
            self.hints.close()
        connection.close()

    def _batch(self) -> Batch:
        found, self.found, ledger = self.found, Found(), self.ledger
        has_begun = not self.is_of_other and self.beginning.began_at is not None
        is_moved = has_begun and self.position != self.stored
        lag = len(self.candidates) if len(self.candidates) != self.lag else None
        # The batch is recorded before the next read, or this reader is closed.
        self.lag = len(self.candidates)
        self.stored = self.position if is_moved else self.stored
        return Batch(
            messages=found.messages,
            position=self.position if is_moved else None,
            lag=lag,
            keep=(lambda: ledger.write(found.changes)) if len(found.changes) else None,
        )

    # The directory

    def _tree(self) -> Tree:
        """The directory, open. SourceError if it is away, or another one than before: then no file has vanished."""
        self._require_no_link()
        try:
            tree = Tree(self.path)
        except (FileNotFoundError, NotADirectoryError):
            raise self._away("is not there") from None
        except PermissionError:
            raise SourceError(
                "The directory may not be read.", remedy="Let the user of the sources process list it."
            ) from None
        except OSError as error:
            raise self._away(f"does not answer: {error.strerror}") from None
        try:
            self._require_same(tree)
        except BaseException:
            tree.close()
            raise
        return tree

    def _require_no_link(self) -> None:
        """A root may be a link; below it none is followed, so that the path in an event can be opened."""
        named = map(os.path.normpath, map(os.fsencode, settings.WAKEFUL_FILE_ROOTS))
        outer = [root for root in named if is_beneath(self.path, root)]
        if not outer:
            raise SourceError(
                "The directory is not below one of WAKEFUL_FILE_ROOTS.",
                remedy="Add it to WAKEFUL_FILE_ROOTS, for the sources processes too.",
            )
        real = os.path.realpath(self.path)
        if not any(real == os.path.realpath(root).rstrip(b"/") + self.path[len(root.rstrip(b"/")) :] for root in outer):
            raise SourceError(
                f"The directory leads to {os.fsdecode(real)} through a link.",
                remedy="Enter that path, and add it to WAKEFUL_FILE_ROOTS if it is not below one of them.",
            )

    def _require_same(self, tree: Tree) -> None:
        if self.settings.sentinel and tree.look(b"", os.fsencode(self.settings.sentinel)) is None:
            raise self._away(f"has no {self.settings.sentinel}")
        root = self.position.get("root")
        if root == tree.identity:
            return
        if root is not None and not self.settings.may_be_replaced and not self._knows(tree):
            raise SourceError(
                "Another directory is at its path, and none of the known files is there.",
                remedy="Mount its file system. If it was made again on purpose, let the source say so: “The directory may be made "
                "again”. Until then its files do not count as vanished.",
            )
        self.position = {**self.position, "root": tree.identity}
        self.scan_at = 0.0  # hints are those of the former directory

    def _knows(self, tree: Tree) -> bool:
        """Whether a known file is there, or none is known."""
        page = next(self.ledger.pages(), [])
        return not page or any((now := _look(tree, known.path)) and now[:2] == known.look[:2] for known in page)

    def _away(self, how: str) -> SourceError:
        return SourceError(
            f"The directory {self.settings.directory} {how}.",
            remedy="Is its file system mounted? Until it is there again, its files do not count as vanished.",
        )

    def _forget_other(self) -> None:
        """The ledger is that of the directory that the source had before."""
        page = next(self.ledger.pages(), [])
        self.found.changes.gone.update(known.path for known in page)
        self.is_of_other = bool(page)

    # Finding candidates

    def _take_hints(self, seconds: float) -> None:
        if self.hints is None:
            time.sleep(seconds)
            return
        hinted = self.hints.wait(seconds)
        if hinted is None or len(hinted) > MOST_HINTS:
            self.scan_at = 0.0
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
        if self._wants(relative):
            self.candidates.add(Path.of(relative), now)

    def _take_folder(self, relative: bytes) -> None:
        if not self._enters(os.path.basename(relative)):
            return
        if len(self.folders) < MOST_FOLDERS:
            self.folders.append(relative)
        else:
            self.scan_at = 0.0

    def _may_scan(self) -> bool:
        if not self.candidates.have_room(time.monotonic()):
            return False
        if self.scan is None:
            if time.monotonic() >= self.scan_at:
                self.scan = self._scan()
            elif self.folders:
                self.scan = self._look_through(self.folders.popleft())
        return self.scan is not None

    def _scan_on(self) -> None:
        if self.scan and next(self.scan, self) is self:
            self.scan = None

    def _scan(self) -> Iterator[None]:
        began, is_first = time.monotonic(), not self.position["is_complete"]
        self.folders.clear()
        self.candidates.was_full = False
        if self.beginning.began_at is None:
            yield from self._begin()
        yield from self._look_through(b"")
        if is_first:
            self.position = self.beginning.complete(self.position)
        took = 0.0 if is_first else time.monotonic() - began  # the first one has written them all
        pause = max(self.settings.every_seconds, took * SCAN_SHARE)
        self.scan_at = time.monotonic() + (self.settings.settle_seconds if self.candidates.was_full else pause)

    def _begin(self) -> Iterator[None]:
        """Ask the file system what time it is. A file server does not say it, but the last change of a folder has passed there: what came
        after the source was made has changed its folder, so that it is not older than that change by more than the age of the source."""
        with self._tree() as tree:
            now = tree.now()
            if now is None:
                last = datetime.min.replace(tzinfo=UTC)

                def opened(_: bytes, fd: int) -> None:
                    nonlocal last
                    last = max(last, changed_at(fd))

                for _ in tree.walk(b"", self._enters, opened):
                    yield
                now = min(last, datetime.now(UTC))  # a stamp may be of the future
                log.warning("source.clock_unknown", directory=self.settings.directory, last_change=now.isoformat())
        self.position = self.beginning.begin(self.position, now)

    def _look_through(self, folder: bytes) -> Iterator[None]:
        """New files of the folder first: a file that was moved is there before it counts as gone."""
        with self._tree() as tree:
            for part in tree.walk(folder, self._enters, self.hints.watch if self.hints else None):
                if isinstance(part, Unread):
                    self._tell(part.folder, part.reason)
                else:
                    self._find_new(tree, part)
                yield
            for page in self.ledger.pages(below=folder):
                self._find_changed(tree, page)
                yield

    def _find_new(self, tree: Tree, part: Part) -> None:
        wanted = [path for name in part.names if self._wants((path := Path(part.folder, name)).relative)]
        known = self.ledger.at(wanted)
        now = time.monotonic()
        for path in wanted:
            if path in known or path in self.candidates or path in self.found.changes.put:
                continue
            if (look := _look(tree, path)) and self._is_passed_over(path, look):
                self.found.changes.put[path] = Known(path=path, look=look)
            else:
                self.candidates.add(path, now)

    def _is_passed_over(self, path: Path, look: Look) -> bool:
        """Whether it was there before the source."""
        if self.position["is_complete"]:
            return False
        return self.beginning.passes_over(path.relative, lambda time: look.ctime_ns >= time.timestamp() * 1e9)

    def _find_changed(self, tree: Tree, page: Sequence[Known]) -> None:
        now = time.monotonic()
        for known in page:
            if not self._wants(known.path.relative):
                if self.beginning.may_forget(known.path.relative):
                    self.found.changes.gone.add(known.path)
                continue
            try:
                look = tree.look(*known.path)
            except OSError:
                continue  # not known: it has not vanished
            # While there is no room for all new files, one that seems gone may be one of them.
            if (look != known.look or not known.is_reported) and (look or not self.candidates.was_full):
                self.candidates.add(known.path, now)

    def _wants(self, relative: bytes) -> bool:
        if not self.selection.wants(relative):
            return False
        if len(relative) > LONGEST_PATH:
            self._tell(relative, NO_PATH)
            return False
        return True

    def _enters(self, name: bytes) -> bool:
        return self.settings.is_deep and self.selection.enters(name)

    def _tell(self, relative: bytes, reason: str) -> None:
        if relative not in self.told and len(self.told) < MOST_TOLD:
            self.told.add(relative)
            self._refuse(relative, reason)

    def _refuse(self, relative: bytes, reason: str) -> None:
        shown = os.path.join(self.path, relative).decode(errors="backslashreplace")
        self.found.messages.append(Poison(id=f"unread:{shown[:LONGEST_PATH]}", reason=f"{reason}: {shown}"[:280]))

    def _until_next(self, wait: float) -> float:
        now = time.monotonic()
        scan_at = now + wait if self.scan else self.scan_at  # one that waits for room waits for the candidates
        return max(min(wait, self.candidates.next_due() - now, scan_at - now), 0.0)

    # Judging them

    def _judge(self, tree: Tree, until: float) -> None:
        due = self.candidates.due(time.monotonic(), BATCH)
        known = self.ledger.at(due)
        looks: dict[Path, Look | None] = {}
        for path in due:
            try:
                looks[path] = tree.look(*path)
            except OSError:
                self.candidates.drop(path)  # the next scan tries it again
        new = [look.inode for path, look in looks.items() if look and path not in known]
        with_inode: dict[int, list[Known]] = {}
        for one in self.ledger.with_inodes(new):
            with_inode.setdefault(one.look.inode, []).append(one)
        # A file that was moved is met at its new path first.
        for path, look in sorted(looks.items(), key=lambda item: item[1] is None):
            if self.found.is_full or time.monotonic() > until:
                break
            was = known.get(path)
            moved = self._moved(tree, path, look, with_inode.get(look.inode, [])) if look and not was else None
            self._judge_one(tree, path, look, was, moved)
        if (
            any(isinstance(one, Received) and one.type == VANISHED for one in self.found.messages)
            and not tree.is_at_its_path()
        ):
            raise self._away("went while it was read")

    def _judge_one(self, tree: Tree, path: Path, look: Look | None, was: Known | None, moved: Known | None) -> None:
        is_same = was.look == look and was.is_reported if was else look is None
        if path in self.found.changes.gone or is_same:
            self.candidates.drop(path)
        elif moved or self._is_settled(tree, path, look):
            self.candidates.drop(path)
            if look:
                self._arrived(tree, path, look, was, moved)
            elif was:
                self.found.changes.gone.add(path)
                if was.is_reported:
                    self._report(VANISHED, was)

    def _moved(self, tree: Tree, path: Path, look: Look | None, candidates: Sequence[Known]) -> Known | None:
        """The known file that this one was, under another path where it is no more."""
        for known in candidates:
            is_same = known.is_reported and look is not None and known.look[:2] == look[:2]
            if is_same and known.path not in self.found.changes.gone and self._wants(known.path.relative):
                with suppress(OSError):
                    left = tree.look(*known.path)
                    if left is None or left.inode != known.look.inode:
                        return known
        return None

    def _is_settled(self, tree: Tree, path: Path, look: Look | None) -> bool:
        seconds = self.settings.settle_seconds
        if look and self.settings.marker:
            marker = _look(tree, Path(path.folder, path.name + self.settings.marker.encode()))
            if marker is None or marker.mtime_ns < look.mtime_ns:
                self.candidates.drop(path)  # found again by the marker, or by the next scan
                return False
            return True
        if look is None:
            seconds = max(seconds, VANISHED_FOR)
        return self.candidates.settles(path, look, now=time.monotonic(), seconds=seconds)

    def _arrived(self, tree: Tree, path: Path, look: Look, was: Known | None, moved: Known | None) -> None:
        try:
            fingerprint = self._fingerprint(tree, path, look)
        except FileNotFoundError:
            fingerprint = None
        except OSError as error:  # each scan tries it again
            self._tell(path.relative, f"it cannot be read ({error.strerror})")
            if was is None:
                self.found.changes.put[path] = Known(path=path, look=look, is_reported=False)
            return
        if fingerprint is None:  # it changed while it was read
            self.candidates.add(path, time.monotonic() + VANISHED_FOR)
            return
        known = Known(path=path, look=look, fingerprint=fingerprint)
        self.found.changes.put[path] = known
        if moved and moved.fingerprint in ("", fingerprint):  # else a new file has the inode of one that was removed
            self.found.changes.gone.add(moved.path)
            self._report(RENAMED, known, moved)
        elif was is None or not was.is_reported:
            self._report(CREATED, known)
        elif was.fingerprint != fingerprint and (was.fingerprint or was.look.fingerprint != look.fingerprint):
            # The content of one that was passed over is not known: a change of its rights or owner alone is none of the content.
            self._report(CHANGED, known, was)

    def _fingerprint(self, tree: Tree, path: Path, look: Look) -> str | None:
        """None if the file does not look like this any more, before or after it was read."""
        with tree.open(*path) as file:
            if Look.of(os.fstat(file.fileno())) != look:
                return None
            like = "sha256:" if look.size <= self.settings.most_hashed else "stat:"
            fingerprint = fingerprint_of(file, look, like=like, seconds=HASH_SECONDS)
            return fingerprint if Look.of(os.fstat(file.fileno())) == look else None

    def _report(self, type: str, known: Known, previous: Known | None = None) -> None:
        once = self.settings.once_per_content
        self.found.messages.append(event_of(type, self.path, known, previous=previous, once_per_content=once))


def _look(tree: Tree, path: Path) -> Look | None:
    """How the file looks; None if there is none, or that cannot be known."""
    with suppress(OSError):
        return tree.look(*path)
    return None
