import sys
from argparse import ArgumentParser, ArgumentTypeError
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from runs.api.strict_json import Unreadable
from runs.management.arguments import since
from runs.management.command import BaseCommand
from runs.management.operator import operator
from triggers.exceptions import Invalid, RuleError
from triggers.schedules.clock import zone_of
from triggers.transfer.carry_out import Import
from triggers.transfer.foreign.bring import bring
from triggers.transfer.foreign.brought import Brought
from triggers.transfer.foreign.read import read

OF_THE_SYSTEM = ("/etc/crontab", "/etc/cron.d/")


class Command(BaseCommand):
    help = (
        "Import the jobs of a crontab, of django-celery-beat or of Healthchecks: all of the file, or nothing if anything is wrong, with "
        "a report of what each becomes and what is left out. A second import makes nothing a second time. See docs/coming-from.md."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        programs = parser.add_subparsers(dest="program", required=True)
        crontab = programs.add_parser("crontab", help="a crontab of a user or of the system")
        beat = programs.add_parser(
            "beat", help="the JSON of `manage.py dumpdata django_celery_beat` of the other project"
        )
        checks = programs.add_parser("healthchecks", help="the JSON of its GET /api/v3/checks/")
        for one in (crontab, beat, checks):
            one.add_argument("file", metavar="FILE", help="the file, or - for standard input")
            one.add_argument("--dry-run", action="store_true", help="only print the report")
        for one in (crontab, beat):
            one.add_argument(
                "--agent",
                default="",
                metavar="NAME",
                help="the agent that the schedules wake; without it: only the report",
            )
            one.add_argument(
                "--on", action="store_true", help="let the schedules fire at once; without it they are paused"
            )
        checks.add_argument("--agent", default="", metavar="NAME", help="an agent to wake when a switch opens")
        crontab.add_argument("--tz", type=_zone, metavar="ZONE", help="zone of the machine (default: UTC)")
        beat.add_argument(
            "--tz", type=_zone, metavar="ZONE",
            help="the TIME_ZONE of a project with USE_TZ = False, whose times have no offset",
        )  # fmt: skip
        beat.add_argument(
            "--last-run-tz", type=_zone, metavar="ZONE",
            help="zone of last_run_at, if it is another: UTC with DJANGO_CELERY_BEAT_TZ_AWARE = False",
        )  # fmt: skip
        beat.add_argument(
            "--since", type=since, metavar="WHEN",
            help="with --on: when the other Beat was killed, which then has not written what it fired in its last three minutes",
        )  # fmt: skip
        crontab.add_argument(
            "--crontab", default="", metavar="NAME",
            help="its name, by which a later import knows its jobs again (default: the name of the file)",
        )  # fmt: skip
        crontab.add_argument(
            "--system", action="store_true", help="its lines name a user (known of /etc/crontab and /etc/cron.d)"
        )
        crontab.add_argument(
            "--since", type=since, metavar="WHEN",
            help="with --on: when cron was stopped, e.g. 2026-05-01T08:00Z or 5m; what fell due since then fires once",
        )  # fmt: skip

    def handle(
        self,
        *,
        program: str,
        file: str,
        agent: str,
        dry_run: bool,
        on: bool = False,
        since: datetime | None = None,
        **options: Any,
    ) -> None:
        if since and (not on or since > timezone.now()):
            raise CommandError("--since: give it with --on, and not in the future")
        if options.get("last_run_tz") and not options["tz"]:
            raise CommandError("--last-run-tz: give it with --tz, the zone of all other times")
        its_own: dict[str, Any] = {
            "zone": options.get("tz") or "",
            "last_run_zone": options.get("last_run_tz") or "",
            "crontab": options.get("crontab") or Path(file).name,
            "system": options.get("system") or file.startswith(OF_THE_SYSTEM),
        }
        try:
            body = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
            brought = read(program, body, agent=agent, is_on=on, since=since, **its_own)
            brought.is_named = bool(options.get("crontab"))
            if is_only_read := program != "healthchecks" and not agent:
                done = Import()
                if brought.problems:
                    raise Invalid(brought.problems)
            else:
                done = bring(brought, program=program, is_on=on, by=operator(), dry_run=dry_run)
        except OSError as error:
            raise CommandError(f"{file}: {error.strerror}") from None
        except Unreadable as reason:
            raise CommandError(f"{file}: {reason}") from None
        except (Invalid, RuleError) as refusal:
            raise CommandError(f"Nothing was changed.\n{refusal}") from None
        self._report(brought, done, dry_run=dry_run or is_only_read)
        if is_only_read and not dry_run:
            raise CommandError("Nothing was changed: name the agent that the schedules are to wake (--agent).")

    def _report(self, brought: Brought, done: Import, *, dry_run: bool) -> None:
        notes = [*brought.notes, *done.notes]
        changes = [{"what": one.what, "is_new": one.is_new, "fields": one.fields} for one in done.changes]
        left = sum(1 for _ in brought.left_out())
        count = f"{len(changes) or 'nothing'} {'would change' if dry_run else 'changed'}; {left or 'nothing'} left out"
        self.answer(
            {
                "dry_run": dry_run,
                "entries": [asdict(line) for line in brought.lines],
                "changes": changes,
                "notes": notes,
            },
            "\n".join([*map(str, brought.lines), *(f"note: {note}" for note in notes), *map(str, done.changes), count]),
        )


def _zone(name: str) -> str:
    try:
        return str(zone_of(name))
    except RuleError as error:
        raise ArgumentTypeError(str(error)) from None
