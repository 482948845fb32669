import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from runs.api.strict_json import Unreadable, parse_json, require_storable
from runs.management.command import BaseCommand
from runs.management.operator import operator
from triggers.transfer.carry_out import import_triggers
from triggers.transfer.check import ImportRefused


class Command(BaseCommand):
    help = "Import a file of export_triggers: all of it, or nothing if anything is wrong."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", help="the file, or - for standard input")
        parser.add_argument("--dry-run", action="store_true", help="only print the changes")

    def handle(self, *, file: str, dry_run: bool, **options: Any) -> None:
        try:
            body = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
            content = parse_json(body)
            require_storable(content)
        except OSError as error:
            raise CommandError(f"{file}: {error.strerror}") from None
        except Unreadable as reason:
            raise CommandError(f"{file}: {reason}") from None
        try:
            done = import_triggers(content, by=operator(), dry_run=dry_run)
        except ImportRefused as refusal:
            raise CommandError(f"Nothing was changed.\n{refusal}") from None
        for note in done.notes:
            self.stderr.write(note)
        count = f"{len(done.changes) or 'nothing'} {'would change' if dry_run else 'changed'}"
        changes = [{"what": one.what, "is_new": one.is_new, "fields": one.fields} for one in done.changes]
        self.answer(
            {"dry_run": dry_run, "changes": changes, "notes": done.notes},
            "\n".join([*map(str, done.changes), count]),
        )
