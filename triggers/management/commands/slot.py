import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from runs.management.command import BaseCommand
from runs.management.operator import operator
from triggers.exceptions import Invalid
from triggers.models import Source
from triggers.sources.databases.publish import create_slot, drop_slot, plan, slot_facts_of
from triggers.sources.databases.server import SlotFacts


class Command(BaseCommand):
    help = (
        "Create or drop the publication and the replication slot of a source of kind postgresql, at its database, or show their "
        "state. Exit code 1 if that fails, and of `status` if the slot cannot be read."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        create = actions.add_parser("create", help="create what is missing of the two")
        create.add_argument("--tables", default="", help="schema.table,…; * for all tables (superusers only)")
        create.add_argument("--failover", action="store_true", help="keep the slot on standbys (PostgreSQL 17)")
        create.add_argument("--sql", action="store_true", help="only print the statements, for the owner of the tables")
        drop = actions.add_parser("drop", help="drop both; disable the source first")
        drop.add_argument("--keep-publication", action="store_true")
        status = actions.add_parser("status", help="show how much WAL the server keeps for the slot")
        status.add_argument("--json", action="store_true", dest="as_json", help="print a JSON object")
        for action in (create, drop, status):
            action.add_argument("slug", metavar="SOURCE")

    def handle(self, *, action: str, slug: str, **options: Any) -> None:
        try:
            source = Source.objects.get(slug=slug)
            match action:
                case "create":
                    self._create(source, **options)
                case "drop":
                    drop_slot(source, keep_publication=options["keep_publication"], by=operator())
                    self.stdout.write("dropped")
                case _:
                    self._show(slot_facts_of(source), as_json=options["as_json"])
        except Source.DoesNotExist:
            raise CommandError(f"No such source: {slug}") from None
        except Invalid as error:
            raise CommandError(str(error)) from None

    def _create(self, source: Source, *, tables: str, failover: bool, sql: bool, **options: Any) -> None:
        chosen = [table.strip() for table in tables.split(",") if table.strip()]
        if sql:
            self.stdout.write(";\n".join([*plan(source, tables=chosen, failover=failover), ""]).rstrip("\n"))
            return
        made = create_slot(source, tables=chosen, failover=failover, by=operator())
        self.stdout.write(f"created; changes from {made.confirmed} on are events")
        if made.keep == "-1":
            self.stdout.write(
                "The server sets no limit to the WAL that a slot keeps: set max_slot_wal_keep_size, below its free disk space."
            )

    def _show(self, facts: SlotFacts, *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(asdict(facts), indent=2))
        else:
            for name, value in asdict(facts).items():
                self.stdout.write(f"{name}: {'–' if value is None else value}")
        if not facts.has_slot or facts.is_lost:
            raise CommandError("The slot cannot be read: it does not exist, or its WAL is gone.")
