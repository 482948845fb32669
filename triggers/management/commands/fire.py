from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError

from agents.kernel.report import Report
from runs.exceptions import IllegalState
from runs.management.arguments import json_argument
from runs.management.command import BaseCommand
from runs.management.operator import operator
from triggers.exceptions import Invalid
from triggers.management.named import trigger_named
from triggers.sources.manual import fire


class Command(BaseCommand):
    help = "Wake a trigger's agent now; prints the id of the new event."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("trigger", metavar="TRIGGER", help="slug of the trigger")
        parser.add_argument("--data", type=json_argument, metavar="JSON", help="the event's data")
        parser.add_argument(
            "--report",
            type=_report,
            metavar="REPORT",
            help="where the end of its run is reported, such as 'end: notify ops' or 'failure: notify; webhook crm'",
        )

    def handle(self, *, trigger: str, data: Any, report: Report | None, **options: Any) -> None:
        try:
            event_id = fire(trigger_named(trigger), data=data, report=report, by=operator())
        except (IllegalState, Invalid) as error:
            raise CommandError(str(error)) from None
        self.answer({"event": event_id}, str(event_id))


def _report(text: str) -> Report:
    try:
        return Report.of_line(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
