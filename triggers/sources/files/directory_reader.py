"""Looks at a directory: a scan finds candidates (`scan`), and each is judged by how it looks now and how it was recorded (`judge`)."""

import os
import time
from functools import partial

from django.db import connection

from triggers.sources.files.beginning import Beginning
from triggers.sources.files.candidates import Candidates
from triggers.sources.files.directory_settings import DirectorySettings
from triggers.sources.files.findings import Findings
from triggers.sources.files.hints import Hints
from triggers.sources.files.judge import Judge
from triggers.sources.files.ledger import Ledger
from triggers.sources.files.scan import MOST_HINTS, Scan
from triggers.sources.files.watched_directory import WatchedDirectory
from triggers.sources.runner import Assignment, Batch, Reader

WORK_SECONDS = 5.0  # of one read


class DirectoryReader(Reader):
    def __init__(self, assignment: Assignment[DirectorySettings]) -> None:
        settings = assignment.settings
        self.ledger = Ledger(assignment.source_id)
        self.candidates = Candidates()
        self.beginning = Beginning(assignment, settings.directory, settings.selection, begin_with=settings.begin_with)
        self.is_of_other = self.beginning.is_of_other
        self.stored = assignment.position
        self.lag: int | None = None
        self.findings = Findings(os.fsencode(settings.directory))
        self.directory = WatchedDirectory(settings, self.ledger, self.findings, self.beginning.position)
        self.hints = Hints.begin() if settings.has_hints else None
        self.scan = Scan(self.directory, self.ledger, self.beginning, self.candidates, self.findings, self.hints)
        self.judge = Judge(self.directory, self.ledger, self.candidates, self.findings)
        try:
            self.directory.open().close()
        except BaseException:
            if self.hints:
                self.hints.close()
            raise

    def read(self, wait: float) -> Batch:
        until = time.monotonic() + WORK_SECONDS
        if self.is_of_other:
            self._forget_other()
            return self._batch()
        with self.directory.open() as tree:
            self.scan.take_hints(0)
            self.judge.judge(tree, until)
            has_scanned = self.scan.may_go_on()
            while not self.findings.is_full and time.monotonic() < until and self.scan.may_go_on():
                self.scan.go_on()
            # After a scan it returns at once: while it waits, it holds no connection to the database.
            if not (has_scanned or self.findings.messages or self.findings.changes or self.scan.may_go_on()):
                self.scan.take_hints(self.scan.until_next(wait))
        return self._batch()

    def stay(self) -> None:
        if self.hints and len(self.candidates) < MOST_HINTS:
            self.scan.take_hints(0)

    def close(self) -> None:
        self.scan.running = None
        if self.hints:
            self.hints.close()
        connection.close()

    def _batch(self) -> Batch:
        messages, changes = self.findings.take()
        has_begun = not self.is_of_other and self.beginning.began_at is not None
        is_moved = has_begun and self.directory.position != self.stored
        lag = len(self.candidates) if len(self.candidates) != self.lag else None
        # The batch is recorded before the next read, or this reader is closed.
        self.lag = len(self.candidates)
        self.stored = self.directory.position if is_moved else self.stored
        return Batch(
            messages=messages,
            position=self.directory.position if is_moved else None,
            lag=lag,
            keep=partial(self.ledger.write, changes) if len(changes) else None,
        )

    def _forget_other(self) -> None:
        """The ledger is that of the directory that the source had before."""
        page = next(self.ledger.pages(), [])
        self.findings.changes.gone.update(known.path for known in page)
        self.is_of_other = bool(page)
