from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from runs.exceptions import RunError
from runs.management.command import BaseCommand
from runs.management.operator import operator
from runs.queues.pause import EVERY, resume


class Command(BaseCommand):
    help = "Start runs again after `pause` or `up --paused`, of one queue or of all."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("queue", nargs="?", default=EVERY, metavar="QUEUE", help="resume this queue only")

    def handle(self, *, queue: str, **options: Any) -> None:
        try:
            resume(queue, by=operator())
        except RunError as error:
            raise CommandError(str(error)) from None
        self.stdout.write("All queues are resumed." if queue == EVERY else f"Queue {queue} is resumed.")
