from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import transaction

from config.installation import removal
from config.installation.namesakes import refuse_namesakes
from runs.management.command import BaseCommand
from runs.network.broker import BrokerAway
from runs.processes.alive import alive


class Command(BaseCommand):
    help = (
        "Remove Wakeful from this database and from Redis: its tables, functions, triggers on your tables, migrations, permissions and "
        "periodic tasks. Everything else stays."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="say what would be removed, and remove nothing")
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument(
            "--also",
            action="append",
            default=[],
            choices=removal.OF_OTHERS,
            metavar="APP",
            help=f"remove the tables of this app as well, which your project does not use: {', '.join(removal.OF_OTHERS)}",
        )

    def handle(self, *, dry_run: bool, yes: bool, also: list[str], **options: Any) -> None:
        refuse_namesakes("Nothing was removed.")
        if removal.is_installed() and (running := sorted(set(alive().values_list("kind", flat=True)))) and not dry_run:
            raise CommandError(f"Stop every process first; alive: {', '.join(running)}.")
        if theirs := [name for name in removal.used_by_project() if name in also]:
            raise CommandError(
                f"{settings.WAKEFUL_PROJECT} has {', '.join(theirs)} among its apps: the tables are the project's. Nothing was removed."
            )
        if needing := removal.dependents(also):
            raise CommandError(
                f"These need what would be removed, and would go with it: {', '.join(needing)}. Drop them first"
                f"{', or leave --also out' if also else ''}. Nothing was removed."
            )
        if self.as_json and not (dry_run or yes):
            raise CommandError("--json asks nothing: add --yes, or --dry-run. Nothing was removed.")
        if (
            not (dry_run or yes)
            and input("This deletes all events, runs and settings. Type `uninstall`: ") != "uninstall"
        ):
            raise CommandError("Nothing was removed.")
        try:
            keys = removal.keys()
        except BrokerAway as error:
            raise CommandError(
                f"Redis does not answer ({error}). Start it, or correct CELERY_BROKER_URL. Nothing was removed."
            ) from None
        with transaction.atomic():
            for done in removal.remove(also):
                self.stdout.write(f"{'would remove' if dry_run else 'removed'} {done}")
            for left in removal.left(also):
                self.stdout.write(f"left {left}")
            if dry_run:
                transaction.set_rollback(True)
        for key in keys:
            self.stdout.write(f"{'would remove' if dry_run else 'removed'} the key {key} of Redis")
        if not dry_run:
            removal.delete_keys(keys)
