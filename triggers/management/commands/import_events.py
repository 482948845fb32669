import sys
from argparse import ArgumentParser
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

from django.core.management.base import CommandError

from runs.management.command import BaseCommand
from runs.management.operator import operator
from triggers.models import Source
from triggers.sources.archive.load import Loaded, lines_of, load

EVERY = 10_000  # lines between two progress messages


class Command(BaseCommand):
    help = (
        "Bring back events from a file of export_events, or any CloudEvents, one JSON object per line. Events that are known are left "
        "as they are, so an import may be repeated. They wake no agent: `manage.py replay` dispatches them. Exit code 1 if a line "
        "was refused."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", help="the file; - is standard input")
        parser.add_argument("--source", default="", metavar="SLUG", help="source of lines that name none")

    def handle(self, *, file: str, source: str, **options: Any) -> None:
        loaded = Loaded()
        said = 0
        try:
            with nullcontext(sys.stdin.buffer) if file == "-" else _opened(file) as opened:
                for loaded in load(lines_of(opened), source=source, by=operator()):
                    if loaded.lines - said >= EVERY:
                        said = loaded.lines
                        self.stderr.write(f"{loaded.lines:,} lines read")
        except Source.DoesNotExist:
            raise CommandError(f"No such source: {source}") from None
        for number, reason in loaded.reasons:
            self.stderr.write(f"line {number}: {reason}")
        without = f" ({loaded.without_payload:,} without payload)" if loaded.without_payload else ""
        counts = ("lines", "imported", "without_payload", "known", "refused")
        refusals = [{"line": number, "reason": reason} for number, reason in loaded.reasons]
        self.answer(
            {**{name: getattr(loaded, name) for name in counts}, "refusals": refusals},
            f"{loaded.imported:,} events imported{without}, {loaded.known:,} known already, {loaded.refused:,} lines refused",
        )
        if loaded.refused:
            raise CommandError(f"{loaded.refused:,} of {loaded.lines:,} lines refused.")


def _opened(file: str) -> IO[bytes]:
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None
