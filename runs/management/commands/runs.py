import json
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any
from uuid import UUID

from rest_framework.utils.encoders import JSONEncoder

from runs.actions.select import select_runs
from runs.api.runs_json import RunSerializer
from runs.management.command import BaseCommand
from runs.models import Run
from runs.states import RunStatus

COLUMNS = "{:<36}  {:<9}  {:<19}  {:>7}  {:<24}  {}"


class Command(BaseCommand):
    help = "List runs, newest first."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--status", choices=RunStatus.values, help="list runs in this status")
        parser.add_argument("--trigger", metavar="SLUG", help="list runs of this trigger")
        parser.add_argument("--event", type=UUID, metavar="ID", help="list runs of this event")
        parser.add_argument(
            "--limit", type=_positive, default=20, metavar="N", help="list at most this many (default: %(default)s)"
        )
        parser.add_argument("--json", action="store_true", dest="as_json", help="print a JSON list")

    def handle(
        self, *, status: str | None, trigger: str | None, event: UUID | None, limit: int, as_json: bool, **options: Any
    ) -> None:
        runs = select_runs(event=event, trigger=trigger, status=status).order_by("-id")[:limit]
        if as_json:
            self.stdout.write(json.dumps(RunSerializer(runs, many=True).data, cls=JSONEncoder, indent=2))
            return
        self.stdout.write(COLUMNS.format("run", "status", "created (UTC)", "attempt", "trigger", "why"))
        for run in runs:
            self.stdout.write(_line(run))


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise ArgumentTypeError("must be a whole number above 0")
    return int(text)


def _line(run: Run) -> str:
    why = (run.error or run.status_reason).partition("\n")[0][:80]
    created = f"{run.created_at:%Y-%m-%d %H:%M:%S}"
    return COLUMNS.format(str(run.id), run.status, created, run.attempt, run.trigger or run.agent, why).rstrip()
