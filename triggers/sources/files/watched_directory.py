"""A directory that is watched: whether it is there and the same as before, and which of its files count."""

import os
from typing import Any

from django.conf import settings

from agents.files import is_beneath
from triggers.sources.files.directory_settings import DirectorySettings
from triggers.sources.files.findings import Findings
from triggers.sources.files.ledger import Ledger
from triggers.sources.files.tree import Tree
from triggers.sources.runner import SourceError

LONGEST_PATH = 2000  # bytes, for the index of the ledger
NO_PATH = f"its path below the directory has more than {LONGEST_PATH} bytes"


class WatchedDirectory:
    """`position` is stored with the events; at `scan_at`, by the monotonic clock, it is scanned again."""

    def __init__(
        self, settings: DirectorySettings, ledger: Ledger, findings: Findings, position: dict[str, Any]
    ) -> None:
        self.settings, self.ledger, self.findings = settings, ledger, findings
        self.selection = settings.selection
        self.path = os.fsencode(settings.directory)
        self.position = position
        self.scan_at = 0.0

    def open(self) -> Tree:
        """The directory, open. SourceError if it is away, or another one than before: then no file has vanished."""
        self._require_no_link()
        try:
            tree = Tree(self.path)
        except (FileNotFoundError, NotADirectoryError):
            raise self.away("is not there") from None
        except PermissionError:
            raise SourceError(
                "The directory may not be read.", remedy="Let the user of the sources process list it."
            ) from None
        except OSError as error:
            raise self.away(f"does not answer: {error.strerror}") from None
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
        if self.settings.sentinel and tree.metadata(b"", os.fsencode(self.settings.sentinel)) is None:
            raise self.away(f"has no {self.settings.sentinel}")
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
        return not page or any(
            (now := tree.try_metadata(*known.path)) and now[:2] == known.metadata[:2] for known in page
        )

    def away(self, how: str) -> SourceError:
        return SourceError(
            f"The directory {self.settings.directory} {how}.",
            remedy="Is its file system mounted? Until it is there again, its files do not count as vanished.",
        )

    def wants(self, relative: bytes) -> bool:
        if not self.selection.wants(relative):
            return False
        if len(relative) > LONGEST_PATH:
            self.findings.tell(relative, NO_PATH)
            return False
        return True

    def enters(self, name: bytes) -> bool:
        return self.settings.is_deep and self.selection.enters(name)
