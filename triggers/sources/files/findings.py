"""What one read has found, until the batch takes it: the messages, and the rows of the ledger that change with them."""

import os

from triggers.sources.files.ledger import Changes
from triggers.sources.runner import BATCH, Poison, Received

MOST_CHANGES = 2000  # rows of the ledger in one batch
MOST_TOLD = 1000  # folders and names that cannot be read, reported once each
LONGEST_ID = 2000  # characters


class Findings:
    def __init__(self, directory: bytes) -> None:
        self.directory = directory
        self.messages: list[Received | Poison] = []
        self.changes = Changes()
        self.told: set[bytes] = set()

    @property
    def is_full(self) -> bool:
        return len(self.messages) >= BATCH or len(self.changes) >= MOST_CHANGES

    def take(self) -> tuple[list[Received | Poison], Changes]:
        """The messages and changes of a batch; the next one begins with none."""
        taken = self.messages, self.changes
        self.messages, self.changes = [], Changes()
        return taken

    def tell(self, relative: bytes, reason: str) -> None:
        """Once for each path, a message that it cannot be read."""
        if relative in self.told or len(self.told) >= MOST_TOLD:
            return
        self.told.add(relative)
        shown = os.path.join(self.directory, relative).decode(errors="backslashreplace")
        self.messages.append(Poison(id=f"unread:{shown[:LONGEST_ID]}", reason=f"{reason}: {shown}"[:280]))
