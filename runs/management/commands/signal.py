from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from runs.actions.signal import signal
from runs.management.arguments import json_argument
from runs.management.each_run import EachRunCommand
from runs.management.operator import operator
from runs.models import Run


class Command(EachRunCommand):
    help = "Send runs a signal, which each may wait for by its name, now or later."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("name", metavar="NAME", help="name the signal")
        parser.add_argument("--data", type=json_argument, metavar="JSON", help="send this data with it")

    def act_on(self, run_id: UUID, *, name: str = "", data: Any = None, **options: Any) -> Run:
        signal(run_id, name=name, data=data, by=operator())
        return Run.objects.get(pk=run_id)

    def describe(self, done: Mapping[str, Any]) -> str:
        return f"{done['id']} signalled"
