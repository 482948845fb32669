"""Judging candidates: by how each looks now and how it was recorded, it was created, changed, renamed or has vanished."""

import os
import time
from collections.abc import Sequence
from contextlib import suppress

from agents.files import FileMetadata, fingerprint_of
from triggers.sources.file_types import CHANGED, CREATED, RENAMED, VANISHED
from triggers.sources.files.candidates import Candidates
from triggers.sources.files.findings import Findings
from triggers.sources.files.ledger import Known, Ledger, Path
from triggers.sources.files.report import event_of
from triggers.sources.files.tree import Tree
from triggers.sources.files.watched_directory import WatchedDirectory
from triggers.sources.runner import BATCH, Received

HASH_SECONDS = 30.0  # for the content of one file
VANISHED_FOR = 1.0  # seconds at least; a file that is replaced is missing for a moment


class Judge:
    def __init__(self, directory: WatchedDirectory, ledger: Ledger, candidates: Candidates, findings: Findings) -> None:
        self.directory, self.settings = directory, directory.settings
        self.ledger, self.candidates, self.findings = ledger, candidates, findings

    def judge(self, tree: Tree, until: float) -> None:
        due = self.candidates.due(time.monotonic(), BATCH)
        known = self.ledger.at(due)
        metadata_of: dict[Path, FileMetadata | None] = {}
        for path in due:
            try:
                metadata_of[path] = tree.metadata(*path)
            except OSError:
                self.candidates.drop(path)  # the next scan tries it again
        new = [metadata.inode for path, metadata in metadata_of.items() if metadata and path not in known]
        with_inode: dict[int, list[Known]] = {}
        for one in self.ledger.with_inodes(new):
            with_inode.setdefault(one.metadata.inode, []).append(one)
        # A file that was moved is met at its new path first.
        for path, metadata in sorted(metadata_of.items(), key=lambda item: item[1] is None):
            if self.findings.is_full or time.monotonic() > until:
                break
            was = known.get(path)
            moved = (
                self._moved(tree, path, metadata, with_inode.get(metadata.inode, [])) if metadata and not was else None
            )
            self._judge_one(tree, path, metadata, was, moved)
        if (
            any(isinstance(one, Received) and one.type == VANISHED for one in self.findings.messages)
            and not tree.is_at_its_path()
        ):
            raise self.directory.away("went while it was read")

    def _judge_one(
        self, tree: Tree, path: Path, metadata: FileMetadata | None, was: Known | None, moved: Known | None
    ) -> None:
        is_same = was.metadata == metadata and was.is_reported if was else metadata is None
        if path in self.findings.changes.gone or is_same:
            self.candidates.drop(path)
        elif moved or self._is_settled(tree, path, metadata):
            self.candidates.drop(path)
            if metadata:
                self._arrived(tree, path, metadata, was, moved)
            elif was:
                self.findings.changes.gone.add(path)
                if was.is_reported:
                    self._report(VANISHED, was)

    def _moved(
        self, tree: Tree, path: Path, metadata: FileMetadata | None, candidates: Sequence[Known]
    ) -> Known | None:
        """The known file that this one was, under another path where it is no more."""
        for known in candidates:
            is_same = known.is_reported and metadata is not None and known.metadata[:2] == metadata[:2]
            if is_same and known.path not in self.findings.changes.gone and self.directory.wants(known.path.relative):
                with suppress(OSError):
                    left = tree.metadata(*known.path)
                    if left is None or left.inode != known.metadata.inode:
                        return known
        return None

    def _is_settled(self, tree: Tree, path: Path, metadata: FileMetadata | None) -> bool:
        seconds = self.settings.settle_seconds
        if metadata and self.settings.marker:
            marker = tree.try_metadata(path.folder, path.name + self.settings.marker.encode())
            if marker is None or marker.mtime_ns < metadata.mtime_ns:
                self.candidates.drop(path)  # found again by the marker, or by the next scan
                return False
            return True
        if metadata is None:
            seconds = max(seconds, VANISHED_FOR)
        return self.candidates.settles(path, metadata, now=time.monotonic(), seconds=seconds)

    def _arrived(self, tree: Tree, path: Path, metadata: FileMetadata, was: Known | None, moved: Known | None) -> None:
        try:
            fingerprint = self._fingerprint(tree, path, metadata)
        except FileNotFoundError:
            fingerprint = None
        except OSError as error:  # each scan tries it again
            self.findings.tell(path.relative, f"it cannot be read ({error.strerror})")
            if was is None:
                self.findings.changes.put[path] = Known(path=path, metadata=metadata, is_reported=False)
            return
        if fingerprint is None:  # it changed while it was read
            self.candidates.add(path, time.monotonic() + VANISHED_FOR)
            return
        known = Known(path=path, metadata=metadata, fingerprint=fingerprint)
        self.findings.changes.put[path] = known
        if moved and moved.fingerprint in ("", fingerprint):  # else a new file has the inode of one that was removed
            self.findings.changes.gone.add(moved.path)
            self._report(RENAMED, known, moved)
        elif was is None or not was.is_reported:
            self._report(CREATED, known)
        elif was.fingerprint != fingerprint and (was.fingerprint or was.metadata.fingerprint != metadata.fingerprint):
            # The content of one that was passed over is not known: a change of its rights or owner alone is none of the content.
            self._report(CHANGED, known, was)

    def _fingerprint(self, tree: Tree, path: Path, metadata: FileMetadata) -> str | None:
        """None if the file does not look like this any more, before or after it was read."""
        with tree.open(*path) as file:
            if FileMetadata.of(os.fstat(file.fileno())) != metadata:
                return None
            like = "sha256:" if metadata.size <= self.settings.most_hashed else "stat:"
            fingerprint = fingerprint_of(file, metadata, like=like, seconds=HASH_SECONDS)
            return fingerprint if FileMetadata.of(os.fstat(file.fileno())) == metadata else None

    def _report(self, type: str, known: Known, previous: Known | None = None) -> None:
        once = self.settings.once_per_content
        self.findings.messages.append(
            event_of(type, self.directory.path, known, previous=previous, once_per_content=once)
        )
