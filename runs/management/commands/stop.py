import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from runs.actions.stop_agents import EVERY, in_words, of_it, still_running, stop_agents
from runs.exceptions import RunError
from runs.management.command import BaseCommand
from runs.management.operator import operator

LOOK_EVERY = 0.2  # seconds


class Command(BaseCommand):
    help = (
        "Stop an agent, or all of them, in an emergency: runs start no more, and those that are running end within seconds, "
        "with their requests to models. They go on from their journals after `start`."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--all", action="store_true", help="all agents")
        which.add_argument("--agent", metavar="NAME", help="this one only")
        parser.add_argument("--reason", default="", help="shown while it is stopped")
        parser.add_argument(
            "--wait",
            type=float,
            default=10.0,
            metavar="SECONDS",
            help="until its runs have ended (default: %(default)s); exit code 1 if some still run",
        )

    def handle(self, *, agent: str | None, reason: str, wait: float, **options: Any) -> None:
        name = agent or EVERY
        try:
            runs = stop_agents(name, reason=reason, by=operator())
        except RunError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"{in_words(name)}. No run{of_it(name)} starts.")
        for run in runs:
            self.stdout.write(f"  stops run {run.id} of {run.agent}")
        until = time.monotonic() + wait
        while left := still_running(runs):
            if time.monotonic() > until:
                raise CommandError(f"{left} of {len(runs)} runs are still running.")
            time.sleep(LOOK_EVERY)
        self.stdout.write(f"{len(runs)} running runs have ended, and wait." if runs else "No run was running.")
