import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from uuid import UUID

from django.core.management.base import CommandError
from django.utils.timezone import now
from rest_framework.utils.encoders import JSONEncoder

from agents.kernel.durations import parse_duration
from config.health.verify import Report, invariants_in, verify
from runs.management.command import BaseCommand


class Command(BaseCommand):
    help = "Check the invariants of the database; exit code 1 if any is violated. Read-only, may run at any time."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--since",
            default="24h",
            metavar="SPAN",
            help="check events of this time span and their runs (default: %(default)s)",
        )
        parser.add_argument("--all", action="store_true", dest="everything", help="check all events and runs")
        parser.add_argument(
            "--drained",
            action="store_true",
            help="also require that no work is left: no backlog, no live run, no outbox",
        )
        parser.add_argument(
            "--accepted",
            type=Path,
            metavar="FILE",
            help='JSON lines {"event": id} from answers to senders: all must exist',
        )
        parser.add_argument(
            "--invariants",
            type=Path,
            metavar="FILE",
            help="your own SQL: `--- what must hold`, then a statement that finds violations",
        )
        parser.add_argument("--json", action="store_true", dest="as_json", help="print a JSON object")

    def handle(
        self,
        *,
        since: str,
        everything: bool,
        drained: bool,
        accepted: Path | None,
        invariants: Path | None,
        as_json: bool,
        **options: object,
    ) -> None:
        try:
            report = verify(
                since=None if everything else now() - parse_duration(since),
                drained=drained,
                accepted=_events(accepted) if accepted else (),
                own=invariants_in(invariants.read_text()) if invariants else (),
            )
        except (OSError, ValueError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(_as_json(report) if as_json else "\n".join(_lines(report)))
        if not report.holds:
            sys.exit(1)


def _events(file: Path) -> Iterator[UUID]:
    with file.open() as lines:
        for line in lines:
            if event := json.loads(line).get("event"):
                yield UUID(event)


def _as_json(report: Report) -> str:
    found = [{"name": finding.name, "violations": finding.violations} for finding in report.findings]
    return json.dumps({"holds": report.holds, "counts": report.counts, "findings": found}, cls=JSONEncoder, indent=2)


def _lines(report: Report) -> Iterator[str]:
    for finding in report.findings:
        yield f"{'VIOLATED' if finding.violations else 'ok':9} {finding.name}"
        for row in finding.violations:
            yield "          " + ", ".join(f"{name}={_text(value)}" for name, value in row.items())
    yield ", ".join(f"{name}: {value}" for name, value in report.counts.items())


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
