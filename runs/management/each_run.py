"""Commands that act on runs, by id or by filter."""

from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError
from django.db.models import QuerySet

from runs.actions.select import select_runs
from runs.api.runs_json import RunSerializer
from runs.management.arguments import since
from runs.management.each import EachCommand
from runs.models import Run
from runs.states import RunStatus


class EachRunCommand(EachCommand):
    """Acts on each of the named runs."""

    noun = "run"

    def act(self, id: str, **options: Any) -> Mapping[str, Any]:
        return RunSerializer(self.act_on(self.id_of(id), **options)).data

    def act_on(self, run_id: UUID, **options: Any) -> Run:
        """Act on this run; return the run to report."""
        raise NotImplementedError

    def describe(self, done: Mapping[str, Any]) -> str:
        return f"{done['id']} {done['status']}"


class FoundRunsCommand(EachRunCommand):
    """Acts on runs by id, or on all runs that match filters; with --dry-run it only counts them."""

    nargs = "*"
    done: str
    legal: Sequence[RunStatus]  # the values of --status
    meant: Sequence[RunStatus]  # the statuses of a filter without --status

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        found = parser.add_argument_group("filters, instead of run ids")
        meant = " or ".join(self.meant)
        found.add_argument("--status", choices=[*self.legal], help=f"select runs in this status (default: {meant})")
        found.add_argument("--trigger", metavar="SLUG", help="select runs of this trigger")
        found.add_argument("--event", type=UUID, metavar="ID", help="select runs of this event")
        found.add_argument(
            "--since", type=since, metavar="WHEN", help="select runs created since, e.g. 2h or 2026-05-01T08:00Z"
        )
        parser.add_argument("--dry-run", action="store_true", help="only print how many runs match")

    def handle(self, *, ids: Sequence[str], as_json: bool, dry_run: bool = False, **options: Any) -> None:
        wanted = {name: options.pop(name) for name in ("status", "trigger", "event", "since")}
        if bool(ids) == any(wanted.values()):
            raise CommandError("Give either run ids, or filters: --status, --trigger, --event or --since.")
        if not ids:
            ids = [str(found) for found in self._found(**wanted).order_by("seq").values_list("id", flat=True)]
        if dry_run:
            self.stdout.write(f'{{"runs": {len(ids)}}}' if as_json else f"{len(ids)} runs would be {self.done}")
            return
        super().handle(ids=ids, as_json=as_json, **options)

    def _found(self, **wanted: Any) -> QuerySet[Run]:
        runs = select_runs(**wanted)
        return runs if wanted["status"] else runs.filter(status__in=self.meant)
