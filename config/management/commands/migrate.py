"""Django's `migrate`, with short lock timeouts: while it waits for a lock on a table, later statements wait behind it."""

import time
from collections.abc import Callable
from typing import Any

from django.core.management.commands import migrate
from django.db import DEFAULT_DB_ALIAS, OperationalError, connection
from psycopg.errors import LockNotAvailable

from config.installation.namesakes import refuse_namesakes, refuse_taken_indexes
from config.installation.schema_objects import differences, repair
from runs.db.schema_check import pending_migrations
from runs.management.json_output import JsonOutput
from triggers.sources.databases.tables.keep import keep_tables

WAIT_FOR_A_LOCK = "SET LOCAL lock_timeout = '2s'"
PAUSE = 5  # seconds, in which the statements behind it continue


class Command(JsonOutput, migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        if options["database"] == DEFAULT_DB_ALIAS:
            refuse_namesakes("Nothing was migrated.")
            refuse_taken_indexes("Nothing was migrated.")
        while True:
            try:
                with connection.execute_wrapper(give_way):
                    super().handle(*args, **options)
                if not pending_migrations():
                    self.repair()
                    keep_tables()  # the columns of watched tables may have changed
                return
            except OperationalError as error:
                if not isinstance(error.__cause__, LockNotAvailable):
                    raise
            self.stderr.write(
                f"\nA migration needs a lock that another session holds (a dump, or a long transaction). It was rolled back, and "
                f"is tried again in {PAUSE} s."
            )
            time.sleep(PAUSE)

    def repair(self) -> None:
        """Migrations that are applied may have left another schema than they make now."""
        if found := differences():
            for one in found:
                self.stdout.write(f"{one}: made as this version makes it")
            repair(found)


def give_way(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
    """Only in transactions: statements outside of one, such as building an index concurrently, cannot be rolled back, and
    block nothing while they wait."""
    if context["connection"].in_atomic_block and not many:
        execute(WAIT_FOR_A_LOCK, None, False, context)
    return execute(sql, params, many, context)
