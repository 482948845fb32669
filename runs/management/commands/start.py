from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from runs.actions.stop_agents import EVERY, start_agents
from runs.exceptions import RunError
from runs.management.command import BaseCommand
from runs.management.operator import operator


class Command(BaseCommand):
    help = "Let an agent that was stopped by `stop`, or all of them, run again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument(
            "--all", action="store_true", help="all agents, but for those that are stopped by themselves"
        )
        which.add_argument("--agent", metavar="NAME", help="this one only")

    def handle(self, *, agent: str | None, **options: Any) -> None:
        try:
            start_agents(agent or EVERY, by=operator())
        except RunError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"Agent {agent} is started." if agent else "All agents are started.")
