import json
import os
import sys
from argparse import ArgumentParser
from datetime import datetime
from pathlib import Path
from typing import IO, Any
from uuid import UUID

from django.core.management.base import CommandError

from runs.management.command import BaseCommand
from runs.management.operator import operator
from runs.models.audit import record_about
from triggers.events.order import Horizon
from triggers.events.search import Search
from triggers.management.search_arguments import add_search_arguments, search_of
from triggers.sources.archive.export import export, last_of

TAIL = 2**20  # bytes read at once to find the last line


class Command(BaseCommand):
    help = (
        "Write events with their payloads as CloudEvents, one JSON object per line, for import_events. Without a search: all. An "
        "event whose payload was removed by retention or erasure is marked (wakefulremoved)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_search_arguments(parser)
        parser.add_argument("--output", type=Path, metavar="FILE", help="write to this file (default: standard output)")
        parser.add_argument(
            "--resume", action="store_true", help="go on after the last whole line of the file; give the same search"
        )
        parser.add_argument("--raw", action="store_true", help="also bodies as received, beside their JSON")

    def handle(
        self, *, output: Path | None, resume: bool, raw: bool, since: datetime | None = None, **options: Any
    ) -> None:
        search = search_of(start=since, **options)
        if output is None:
            if resume:
                raise CommandError("--resume needs --output.")
            if self.as_json:
                raise CommandError("--json needs --output: without it, the events themselves are the output.")
            self._write(sys.stdout.buffer, search, 0, raw)
            return
        if output.exists() and not resume:
            raise CommandError(f"{output} exists; add --resume, or choose another file.")
        # A new file holds payloads: it is its owner's alone.
        with os.fdopen(os.open(output, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            count = self._write(file, search, _last_seq(file), raw)
            file.flush()
            os.fsync(file.fileno())
        if self.as_json:
            self.answer({"events": count, "file": str(output)}, "")

    def _write(self, file: IO[bytes], search: Search, after: int, raw: bool) -> int:
        """Returns how many events were written."""
        record_about(operator(), "export", "event", "*", conditions=sorted(search.dump()), resumed=after > 0)
        horizon, goal, count = Horizon(), last_of(search), 0
        for count, exported in enumerate(export(search, after=after, raw=raw, horizon=horizon), 1):  # noqa: B007
            file.write(exported.text)
        self.stderr.write(f"{count:,} events exported")
        if max(horizon.reached, after, search.above) < goal:
            self.stderr.write(
                "Newer ones are left out: a transaction is open that may have recorded an event before them. "
                "Go on with --resume when it has ended."
            )
        return count


def _last_seq(file: IO[bytes]) -> int:
    """The `seq` of the last whole line, or 0; a line that was cut off is removed."""
    end = _last_newline(file, file.seek(0, os.SEEK_END))
    file.truncate(end)
    file.seek(end)
    if not end:
        return 0
    begin = _last_newline(file, end - 1)
    file.seek(begin)
    try:
        line = json.loads(file.read(end - begin))
        UUID(line["wakefulid"])
    except (ValueError, KeyError, TypeError):
        raise CommandError("The last line of the file is not one of an export.") from None
    if not isinstance(line.get("wakefulseq"), int):
        raise CommandError("An earlier version wrote the file, in another order. Export to a new one.")
    file.seek(end)
    return int(line["wakefulseq"])


def _last_newline(file: IO[bytes], end: int) -> int:
    """The position after the last newline before `end`; 0: there is none."""
    while end > 0:
        begin = max(end - TAIL, 0)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0
