from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agents.exceptions import DeclarationError
from runs.budgets.declared import sync_budgets
from runs.management.operator import operator
from triggers.declarations.sync import sync


class Command(BaseCommand):
    help = "Make the triggers, schedules and budgets in the database say what the agents' code declares. Operators' changes stay."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            changes: list[object] = [*sync(by=operator()), *sync_budgets(by=operator())]
        except DeclarationError as error:
            raise CommandError(f"Nothing was changed.\n{error}") from None
        for change in changes:
            self.stdout.write(str(change))
        if not changes:
            self.stdout.write("nothing changed")
