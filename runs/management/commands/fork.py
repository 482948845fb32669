from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from runs.actions.fork import fork
from runs.management.arguments import json_argument
from runs.management.each_run import EachRunCommand
from runs.management.operator import operator
from runs.models import Run

AS_IT_WAS = object()


class Command(EachRunCommand):
    help = "Create runs from copies of the journals of earlier runs; unfinished origins are cancelled."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--step", default="", metavar="KEY", help="copy the journal before this entry (default: copy nothing)"
        )
        parser.add_argument(
            "--input", type=json_argument, default=AS_IT_WAS, metavar="JSON", help="replace the input of the run"
        )

    def act_on(self, run_id: UUID, *, step: str = "", input: Any = AS_IT_WAS, **options: Any) -> Run:
        given = {} if input is AS_IT_WAS else {"input": input, "has_input": True}
        return fork(run_id, step=step, by=operator(), **given)

    def describe(self, done: Mapping[str, Any]) -> str:
        return f"{done['id']} {done['status']}, forked from {done['forked_from_id']}"
