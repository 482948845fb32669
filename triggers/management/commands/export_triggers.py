import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from runs.management.command import BaseCommand
from triggers.models import Trigger
from triggers.transfer.export import export_triggers


class Command(BaseCommand):
    help = "Print triggers, their schedules and their sources (no secrets) as JSON, for import_triggers elsewhere."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slugs", nargs="*", metavar="TRIGGER", help="slugs of triggers (default: all)")

    def handle(self, *, slugs: list[str], **options: Any) -> None:
        try:
            export = export_triggers(slugs)
        except Trigger.DoesNotExist as unknown:
            raise CommandError(f"No such trigger: {unknown}") from None
        for note in export.notes:
            self.stderr.write(note)
        self.stdout.write(json.dumps(export.content, indent=2, ensure_ascii=False))
