from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from runs.management.command import BaseCommand
from runs.management.operator import operator
from triggers.exceptions import RuleError
from triggers.schedules.reminders import remind, text_of
from triggers.schedules.rules.words import read_rule


class Command(BaseCommand):
    help = "Wake an agent once, with a text; prints the reminder."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("when", metavar="WHEN", help='such as "in 20 minutes" or "tomorrow at 9:00"')
        parser.add_argument("agent", metavar="AGENT")
        parser.add_argument("text", metavar="TEXT")
        parser.add_argument("--tz", default="UTC", metavar="ZONE", help="zone of WHEN (default: UTC)")

    def handle(self, *, when: str, agent: str, text: str, tz: str, **options: Any) -> None:
        try:
            rule = read_rule(when, tz)
            schedule = remind(when=rule, text=text, agent=agent, by=operator())
        except RuleError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"{rule.words}: {text_of(schedule)} ({schedule.task.name})")
