"""No process works on a database that this version's migrations have not been applied to."""

import time

import structlog
from django.db import OperationalError, connection
from django.db.migrations.executor import MigrationExecutor

log = structlog.get_logger(__name__)

LOOK_EVERY = 1.0  # seconds


class NotMigrated(OperationalError):
    """Migrations of this version are missing; the message names the command. Those of a newer version are no concern."""


def require_migrations() -> None:
    """Call after every (re)connection."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if plan:
        missing = ", ".join(f"{migration.app_label}.{migration.name}" for migration, _ in plan[:5])
        raise NotMigrated(f"The database lacks {len(plan)} migrations ({missing}): run `manage.py migrate`.")


def wait_for_migrations() -> None:
    """Block until they are applied."""
    while True:
        try:
            return require_migrations()
        except NotMigrated as error:
            log.error("database.not_migrated", error=str(error))
            time.sleep(LOOK_EVERY)
