from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agents.exceptions import DeclarationError
from runs.management.operator import operator
from triggers.declarations.sync import sync


class Command(BaseCommand):
    help = (
        "Make the triggers and schedules in the database say what the agents' code declares. Operators' changes stay."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            changes = sync(by=operator())
        except DeclarationError as error:
            raise CommandError(f"Nothing was changed.\n{error}") from None
        for change in changes:
            self.stdout.write(str(change))
        if not changes:
            self.stdout.write("nothing changed")
