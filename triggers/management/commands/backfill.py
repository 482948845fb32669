import json
from argparse import ArgumentParser
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError
from rest_framework.utils.encoders import JSONEncoder

from runs.exceptions import IllegalState
from runs.management.arguments import instant
from runs.management.command import BaseCommand
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
            "--from", type=instant, required=True, dest="start", metavar="INSTANT",
            help="first instant, such as 2026-11-20 or 2026-11-20T09:00; without an offset: local time in the schedule's zone",
        )  # fmt: skip
        parser.add_argument(
            "--to", type=instant, required=True, dest="end", metavar="INSTANT",
            help="end of the range, exclusive; at most now",
        )  # fmt: skip
        parser.add_argument("--at-once", type=int, default=1, metavar="N", help="maximum concurrent runs (default: 1)")
        parser.add_argument(
            "--priority", type=int, metavar="N", help="priority of its runs: 0 is most urgent, 9 (the default) least"
        )
        parser.add_argument("--again", action="store_true", help="fire also times that have already fired")
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
