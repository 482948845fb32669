import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError
from rest_framework.utils.encoders import JSONEncoder

from runs.management.command import BaseCommand
from runs.management.operator import operator
from triggers.matching.expressions.cel import ExpressionError
from triggers.retention.erasure import Erasure, Selection, erase


class Command(BaseCommand):
    help = (
        "Erase the payloads of events for good, with everything derived from them; ids, types and times stay. "
        "Exit code 1 if an event was left because it is still needed: repeat the command then."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--subject", default="", help="exact subject of the events")
        parser.add_argument("--source", default="", metavar="SLUG", help="only events of this source")
        parser.add_argument(
            "--where",
            default="",
            metavar="CEL",
            help='only events for which this is true, such as event.data.id == "7"',
        )
        parser.add_argument("--dry-run", action="store_true", help="only count; changes nothing")
        parser.add_argument("--yes", action="store_true", help="confirm: it cannot be undone")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print a JSON object")

    def handle(
        self, *, subject: str, source: str, where: str, dry_run: bool, yes: bool, as_json: bool, **options: Any
    ) -> None:
        if not (yes or dry_run):
            raise CommandError(
                "Nothing was erased. Erasing cannot be undone: count with --dry-run first, then confirm with --yes."
            )
        try:
            selection = Selection(subject=subject, source=source, where=where)
            erasure = erase(selection, by=operator(), dry_run=dry_run)
        except ExpressionError as error:
            raise CommandError(f"--where: {error}") from None
        except ValueError as error:
            raise CommandError(f"{error}: --subject or --where") from None
        if as_json:
            self.stdout.write(json.dumps(asdict(erasure), cls=JSONEncoder, indent=2))
        else:
            self._report(erasure, "would be erased" if dry_run else "erased")
        if erasure.left:
            raise CommandError(
                f"{len(erasure.left)} events are still needed and were left. Repeat the command when they are done."
            )

    def _report(self, erasure: Erasure, verb: str) -> None:
        meetings = f", {erasure.meetings} entries and waiting starts of calendars" if erasure.meetings else ""
        self.stdout.write(f"{erasure.events} events and {erasure.runs} runs{meetings} {verb}")
        for one in erasure.left:
            why = (
                f"needed by run {', '.join(map(str, one.runs))}" if one.runs else "not dispatched, held, or in a window"
            )
            self.stdout.write(f"left: event {one.event_id}, {why}")
        if erasure.unread:
            self.stdout.write(
                f"{len(erasure.unread)} events could not be checked: their data did not parse and is kept as received. "
                "Check each of them, and erase it on its page or by its subject:"
            )
        for id in erasure.unread:
            self.stdout.write(f"not checked: event {id}")
