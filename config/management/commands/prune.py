import json
from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from config import retention
from runs.management.arguments import duration
from runs.management.command import BaseCommand
from runs.management.operator import operator
from runs.models.audit import record_about
from runs.retention.sweep import set_out_afresh


class Command(BaseCommand):
    help = "Delete rows that are older than the WAKEFUL_KEEP_… settings allow; Beat does the same every hour."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only count the rows; changes nothing")
        parser.add_argument(
            "--afresh", action="store_true", help="start at the oldest row, not where the last run ended"
        )
        parser.add_argument("--budget", type=duration, metavar="TIME", help="stop after this long, such as 30s or 10m")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print a JSON list")

    def handle(self, *, dry_run: bool, afresh: bool, budget: timedelta | None, as_json: bool, **options: Any) -> None:
        if afresh and not dry_run:
            set_out_afresh(every=timedelta())
        pruned = retention.count() if dry_run else retention.prune(budget=budget)
        if not dry_run:
            record_about(operator(), "prune", "retention", "all", **{one.name: one.rows for one in pruned})
        if as_json:
            self.stdout.write(json.dumps([vars(one) for one in pruned], indent=2))
            return
        verb = "would go" if dry_run else "gone"
        for one in pruned:
            self.stdout.write(f"{one.name:<16} {one.rows:>10} {verb}{'' if one.complete else ', and there is more'}")
