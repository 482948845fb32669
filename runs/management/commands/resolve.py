from argparse import ArgumentParser
from typing import Any, get_args
from uuid import UUID

from runs.actions.resolve import UncertainOutcome, resolve
from runs.management.arguments import json_argument
from runs.management.each_run import EachRunCommand
from runs.management.operator import operator
from runs.models import Run


class Command(EachRunCommand):
    help = "Resolve uncertain runs: say whether the step happened that each is parked over."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--outcome", choices=get_args(UncertainOutcome), required=True, help="say what happened")
        parser.add_argument(
            "--result", type=json_argument, metavar="JSON", help="record this output, with --outcome happened"
        )

        parser.add_argument(
            "--epoch",
            type=int,
            help="refuse a run that has another epoch, as `runs --json` shows it: its question is another one",
        )

    def act_on(
        self,
        run_id: UUID,
        *,
        outcome: UncertainOutcome = "fail",
        result: Any = None,
        epoch: int | None = None,
        **options: Any,
    ) -> Run:
        return resolve(run_id, outcome=outcome, result=result, epoch=epoch, by=operator())
