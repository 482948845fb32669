from typing import Any

from django.core.management.base import CommandError

from agents.exceptions import DeclarationError
from runs.actions.checklists import declared_checklists, sync_checklists
from runs.budgets.declarations import sync_budgets
from runs.management.command import BaseCommand
from runs.management.operator import operator
from triggers.declarations.sync import sync


class Command(BaseCommand):
    help = "Write the triggers, schedules, budgets and checklists that agents declare in code to the database. Operators' changes are kept."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            checklists = declared_checklists()
            changes: list[object] = [
                *sync(by=operator()),
                *sync_budgets(by=operator()),
                *sync_checklists(checklists),
            ]
        except DeclarationError as error:
            raise CommandError(f"Nothing was changed.\n{error}") from None
        lines = [str(change) for change in changes]
        self.answer({"changes": lines}, "\n".join(lines) or "nothing changed")
