"""A directory that is read as the process does it: connect, read, record, one batch after the other."""

import time
from pathlib import Path
from typing import Any

from django.db import transaction

from triggers.models import Source
from triggers.sources.files.directory_reader import DirectoryReader
from triggers.sources.kind import kinds
from triggers.sources.runner import Assignment, Poison, Received, Runner

Seen = tuple[str, str]  # change, path below the directory


class Watching:
    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory = directory
        self.given = {"directory": str(directory), "begin_with": "all", "has_hints": False, **settings}
        self.source = Source.objects.create(slug="in", kind="directory", settings=self.given)
        self.position: Any = None
        self.messages: list[Received] = []
        self.poison: list[Poison] = []
        self.reader = self.connect()

    def connect(self, **settings: Any) -> DirectoryReader:
        """As after a kill: nothing is left but what was recorded."""
        runner = kinds()["directory"]
        assert isinstance(runner, Runner)
        self.given = {**self.given, **settings}
        assignment: Assignment[Any] = Assignment(
            slug="in",
            settings=runner.clean_settings(self.given),
            position=self.position,
            source_id=self.source.pk,
        )
        reader = runner.connect(assignment)
        assert isinstance(reader, DirectoryReader)
        self.reader = reader
        return reader

    def look(self) -> list[Seen]:
        """Scan, let everything settle, and scan again: the changes and paths of its events, sorted."""
        found: list[Received] = []
        for _ in range(2):
            self.reader.directory.scan_at = 0.0
            found += self.read_all()
            self.settle()
            found += self.read_all()
        return sorted(self.seen(message) for message in found)

    def settle(self) -> None:
        for candidate in self.reader.candidates.waiting.values():
            candidate.due = 0.0

    def read_all(self) -> list[Received]:
        """What is read until nothing is left to do at once."""
        found: list[Received] = []
        while True:
            found += self.read()
            now, candidates = time.monotonic(), self.reader.candidates
            is_scanning = candidates.have_room(now) and (
                self.reader.scan.running or self.reader.directory.scan_at <= now
            )
            if candidates.next_due() > now and not is_scanning:
                return found

    def read(self) -> list[Received]:
        batch = self.reader.read(0)
        with transaction.atomic():
            if batch.keep:
                batch.keep()
        if batch.position is not None:
            self.position = batch.position
        self.poison += [message for message in batch.messages if isinstance(message, Poison)]
        found = [message for message in batch.messages if isinstance(message, Received)]
        self.messages += found
        return found

    def seen(self, message: Received) -> Seen:
        return message.type.removeprefix("file."), message.payload.data["path"].removeprefix(f"{self.directory}/")

    @property
    def last(self) -> Any:
        """The data of the last event."""
        return self.messages[-1].payload.data
