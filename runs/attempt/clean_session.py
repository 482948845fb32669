"""Clean a child's session of what a body changed in it: settings, roles, advisory locks, LISTEN, cursors, temporary tables. The
next run may be any other agent's. Prepared statements stay, and a body that changes nothing costs nothing."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from django.db import DatabaseError, connection

from agents.guards.sql_writes import text_of
from runs.db import session
from runs.db.sql import execute, fetch

log = structlog.get_logger(__name__)

# Statements as a body writes them; what a function of the database does inside is not seen.
CHANGES = re.compile(
    r"(?:^|;)[\s(]*(?:SET|RESET|LISTEN|DECLARE|LOAD|CREATE\s+(?:(?:GLOBAL|LOCAL)\s+)?TEMP(?:ORARY)?)\b"
    r"|\bset_config\s*\(|\bpg_(?:try_)?advisory_lock|\bINTO\s+TEMP",
    re.I,
)
NAME = "SELECT set_config('application_name', %s::text, false)"
LEFTOVERS = ("SELECT pg_advisory_unlock_all()", "UNLISTEN *", "CLOSE ALL", "DISCARD TEMP")
_changed = False


@contextmanager
def noticing_changes() -> Iterator[None]:
    """Within, a statement that changes the session is noticed. The body's own threads end their sessions by themselves."""

    def notice(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        global _changed
        _changed = _changed or CHANGES.search(text_of(sql)) is not None
        return execute(sql, params, many, context)

    with connection.execute_wrapper(notice):
        yield


def reset_settings(session_name: str) -> None:
    """Within the body's transaction, so that what ends the run is not done under the body's settings."""
    if _changed:
        _reset_settings()
        fetch(NAME, [session_name])


def clean() -> None:
    """Once the body's transaction is over. A session that cannot be cleaned is ended."""
    global _changed
    if not _changed:
        return
    _changed = False
    if connection.connection is None or connection.in_atomic_block:
        return
    try:
        _reset_settings()
        for statement in LEFTOVERS:
            execute(statement)
    except DatabaseError:
        log.warning("session.not_cleaned", exc_info=True)
        connection.close()


def _reset_settings() -> None:
    execute("RESET SESSION AUTHORIZATION")
    execute("RESET ALL")
    connection.ensure_timezone()
    if session.is_read_only():
        fetch(session.READ_ONLY)
    if role := connection.settings_dict["OPTIONS"].get("assume_role"):
        fetch("SELECT set_config('role', %s::text, false)", [role])
