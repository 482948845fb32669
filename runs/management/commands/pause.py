import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from runs.exceptions import RunError
from runs.management.command import BaseCommand
from runs.management.operator import operator
from runs.queues.pause import EVERY, in_words, pause
from runs.queues.state import all_queues

LOOK_EVERY = 0.5  # seconds


class Command(BaseCommand):
    help = "Start no more runs, of one queue or of all; events are still accepted, and their runs wait."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("queue", nargs="?", default=EVERY, metavar="QUEUE", help="pause this queue only")
        parser.add_argument("--reason", required=True, help="record why; shown while the queue is paused")
        parser.add_argument(
            "--wait",
            type=float,
            metavar="SECONDS",
            help="wait until none of its runs is running; exit code 1 if some still are",
        )

    def handle(self, *, queue: str, reason: str, wait: float | None, **options: Any) -> None:
        try:
            pause(queue, reason=reason, by=operator())
        except RunError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"{in_words(queue)}.")
        if wait is not None:
            self._wait(queue, time.monotonic() + wait)

    def _wait(self, queue: str, deadline: float) -> None:
        while left := running(queue):
            if time.monotonic() > deadline:
                raise CommandError(f"{left} of its runs are still running. Wait longer (--wait), or cancel them.")
            time.sleep(LOOK_EVERY)
        self.stdout.write("None of its runs is running.")


def running(queue: str) -> int:
    return sum(one.running for one in all_queues() if queue in (EVERY, one.name))
