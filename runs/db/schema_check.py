"""A process works only on a database with all migrations of its version."""

import time
from collections.abc import Callable
from functools import cache

import structlog
from django.db import OperationalError, connection
from django.db.migrations.loader import MigrationLoader

from runs.db.sql import fetch

log = structlog.get_logger(__name__)

LOOK_EVERY = 1.0  # seconds


class NotMigrated(OperationalError):
    """Migrations of this version are missing; the message names the command. Migrations of a newer version do not matter."""


def pending_migrations() -> list[str]:
    """Migrations of this code that are not applied to the database, as app.name."""
    applied = set()
    if "django_migrations" in connection.introspection.table_names():
        applied = set(fetch("SELECT app, name FROM django_migrations"))
    return [f"{app}.{name}" for app, name in needed_migrations() if (app, name) not in applied]


@cache
def needed_migrations() -> list[tuple[str, str]]:
    return sorted(MigrationLoader(None).disk_migrations)


def require_migrations() -> None:
    """Call after every (re)connection."""
    if missing := pending_migrations():
        first = ", ".join(missing[:5])
        raise NotMigrated(f"The database lacks {len(missing)} migrations ({first}): run `manage.py migrate`.")


def wait_for_migrations(*, meanwhile: Callable[[], None]) -> None:
    """Block until they are applied."""
    while True:
        try:
            return require_migrations()
        except NotMigrated as error:
            meanwhile()
            log.error("database.not_migrated", error=str(error))
            time.sleep(LOOK_EVERY)
