import json
from argparse import ArgumentParser, ArgumentTypeError
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.core.management.base import CommandError
from rest_framework.utils.encoders import JSONEncoder

from runs.exceptions import IllegalState
from runs.management.arguments import instant
from runs.management.command import BaseCommand
from runs.management.operator import operator
from triggers.api.schedules_json import AnswerSerializer, ScheduleSerializer
from triggers.exceptions import RuleError
from triggers.management.named import schedule_named
from triggers.models import Schedule
from triggers.schedules.clock import zone_of
from triggers.schedules.edit import pause_schedule, resume_schedule
from triggers.schedules.explain.why import why
from triggers.schedules.plans import UNSETTLED
from triggers.schedules.preview import describe, upcoming
from triggers.schedules.rows import RELATED

COLUMNS = "{:<36}  {:<8}  {:<20}  {:>8}  {}"


class Command(BaseCommand):
    help = "List schedules, soonest first; show the next fires of one, or why it did not run; pause and resume it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
        commands = parser.add_subparsers(dest="command", metavar="COMMAND")
        listing = commands.add_parser("list", help="every schedule (the default)")
        reasons = commands.add_parser("why", help="explain why it did not run at a time, or the outcome")
        reasons.add_argument(
            "--at", type=instant, required=True, metavar="TIME",
            help="such as 2026-11-20T09:00; without an offset: local time in --tz, or in the schedule's zone",
        )  # fmt: skip
        reasons.add_argument("--tz", type=_zone, metavar="ZONE", help="such as Europe/Vienna")
        pausing = commands.add_parser("pause", help="pause it; times during the pause are not caught up")
        pausing.add_argument("--note", default="", help="reason, shown while it is paused")
        resuming = commands.add_parser("resume", help="resume it, counting from now")
        nexts = commands.add_parser("next", help="its next nominal times")
        nexts.add_argument("--count", type=int, choices=range(1, 101), default=10, metavar="N", help="default: 10")
        for command in (reasons, pausing, resuming, nexts):
            command.add_argument("name", metavar="NAME", help="name of the schedule, or its id")
        for command in (listing, reasons, nexts):
            command.add_argument("--json", action="store_true", dest="as_json", default=False, help="print JSON")

    def handle(self, *, command: str | None, **options: Any) -> None:
        if command in (None, "list"):
            self._list(options["as_json"])
            return
        schedule = schedule_named(options["name"])
        try:
            match command:
                case "why":
                    self._why(schedule, options["at"], options["tz"], options["as_json"])
                case "next":
                    self._next(schedule, options["count"], options["as_json"])
                case "pause":
                    pause_schedule(schedule, note=options["note"], by=operator())
                    self.stdout.write(f"{schedule.task.name} is paused.")
                case "resume":
                    self._tell_next(resume_schedule(schedule, by=operator()))
        except IllegalState as refusal:
            raise CommandError(str(refusal)) from None

    def _list(self, as_json: bool) -> None:
        schedules = (
            Schedule.objects.select_related(*RELATED).prefetch_related("exclude", UNSETTLED).order_by("due_at", "id")
        )
        if as_json:
            self._print(ScheduleSerializer(schedules, many=True).data)
            return
        self.stdout.write(COLUMNS.format("schedule", "status", "next (UTC)", "fires", "rule"))
        for one in schedules.iterator(chunk_size=1000):
            next_fire = f"{one.next_fire_at:%Y-%m-%d %H:%M:%S}" if one.next_fire_at else "-"
            self.stdout.write(
                COLUMNS.format(one.task.name, one.status, next_fire, one.fires, one.problem or describe(one))
            )

    def _why(self, schedule: Schedule, at: datetime, zone: ZoneInfo | None, as_json: bool) -> None:
        try:
            answer = why(schedule, at, zone=zone)
        except OverflowError:
            raise CommandError("--at is outside the calendar (years 1 to 9999)") from None
        if as_json:
            self._print(AnswerSerializer(answer).data)
            return
        self.stdout.write(answer.text)
        for label, text in answer.facts:
            self.stdout.write(f"  {label}: {text}")

    def _next(self, schedule: Schedule, count: int, as_json: bool) -> None:
        fires = upcoming(schedule, count)
        if as_json:
            self._print({"rule": describe(schedule), "next_fires": fires})
            return
        self.stdout.write(f"{describe(schedule)}: {schedule.status}")
        for fire in fires:
            self.stdout.write(f"  {fire:%a %Y-%m-%d %H:%M:%S %Z}")

    def _tell_next(self, schedule: Schedule) -> None:
        when = "".join(f"; it fires next {fire:%a %Y-%m-%d %H:%M:%S %Z}" for fire in upcoming(schedule, 1))
        self.stdout.write(f"{schedule.task.name} is on{when}.")

    def _print(self, content: Any) -> None:
        self.stdout.write(json.dumps(content, cls=JSONEncoder, indent=2))


def _zone(name: str) -> ZoneInfo:
    try:
        return zone_of(name)
    except RuleError as error:
        raise ArgumentTypeError(str(error)) from None
