import json
from argparse import ArgumentParser, ArgumentTypeError
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from rest_framework.utils.encoders import JSONEncoder

from runs.exceptions import IllegalState
from runs.management.operator import operator
from triggers.api.backfills import BackfillSerializer
from triggers.exceptions import RuleError
from triggers.management.named import schedule_named
from triggers.schedules.backfill.start import start_backfill


class Command(BaseCommand):
    help = "Fire a schedule for the nominal times of a past range, a few at a time. Prints the id of the backfill."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("schedule", metavar="SCHEDULE", help="name of the schedule, or its id")
        parser.add_argument(
            "--from", type=_instant, required=True, dest="start", metavar="INSTANT",
            help="the first instant, such as 2026-11-20 or 2026-11-20T09:00; without an offset in the schedule's zone",
        )  # fmt: skip
        parser.add_argument(
            "--to", type=_instant, required=True, dest="end", metavar="INSTANT",
            help="the instant before which the range ends; at most now",
        )  # fmt: skip
        parser.add_argument(
            "--at-once", type=int, default=1, metavar="N", help="how many of its runs may run at once (default: 1)"
        )
        parser.add_argument(
            "--priority", type=int, metavar="N", help="of its runs: 0 is most urgent, 9 (the default) least"
        )
        parser.add_argument("--again", action="store_true", help="fire also what has fired already")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print the backfill as a JSON object")

    def handle(
        self, *, schedule: str, start: datetime, end: datetime, at_once: int, priority: int | None, again: bool,
        as_json: bool, **options: Any,
    ) -> None:  # fmt: skip
        try:
            backfill = start_backfill(
                schedule_named(schedule),
                start=start,
                end=end,
                at_once=at_once,
                priority=priority,
                again=again,
                by=operator(),
            )
        except (RuleError, IllegalState) as error:
            raise CommandError(str(error)) from None
        if as_json:
            self.stdout.write(json.dumps(BackfillSerializer(backfill).data, cls=JSONEncoder, indent=2))
        else:
            self.stdout.write(f"{backfill.pk} {backfill.total} nominal times")


def _instant(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a time; use e.g. 2026-11-20 or 2026-11-20T09:00") from None
