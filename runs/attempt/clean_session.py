"""Undo what a body changed in its database session: settings, roles, advisory locks, LISTEN, cursors, temporary tables. The next
run may belong to another agent. Prepared statements stay, and a body that changes nothing costs nothing."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import structlog
from django.db import DatabaseError, connection

from agents.guards.sql_writes import text_of
from runs.db import session
from runs.db.sql import execute, fetch

log = structlog.get_logger(__name__)

# Statements of the body; changes inside a function of the database are not recognized.
CHANGES = re.compile(
    r"(?:^|;)[\s(]*(?:SET|RESET|LISTEN|DECLARE|LOAD|CREATE\s+(?:(?:GLOBAL|LOCAL)\s+)?TEMP(?:ORARY)?)\b"
    r"|\bset_config\s*\(|\bpg_(?:try_)?advisory_lock|\bINTO\s+TEMP",
    re.I,
)
NAME = "SELECT set_config('application_name', %s::text, false)"
LEFTOVERS = ("SELECT pg_advisory_unlock_all()", "UNLISTEN *", "CLOSE ALL", "DISCARD TEMP")
KEPT, LONGEST_KEPT = 512, 10_000  # statements, characters: of each is remembered whether it changes the session
_changed = False


@contextmanager
def noticing_changes() -> Iterator[None]:
    """Inside the block, note whether a statement changes the session. Sessions of the body's own threads end with their
    steps.
    """

    def notice(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        global _changed
        _changed = _changed or changes(text_of(sql))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(notice):
        yield


def changes(text: str) -> bool:
    return _changes(text) if len(text) <= LONGEST_KEPT else CHANGES.search(text) is not None


@lru_cache(maxsize=KEPT)
def _changes(text: str) -> bool:
    return CHANGES.search(text) is not None


def is_changed() -> bool:
    return _changed


def reset_settings(session_name: str) -> None:
    """Call within the body's transaction, so that the statement that ends the run does not use the body's settings."""
    if _changed:
        _reset_settings()
        fetch(NAME, [session_name])


def clean() -> None:
    """Call after the body's transaction."""
    global _changed
    if _changed:
        _changed = False
        renew()


def renew() -> None:
    """Undo whatever was changed in the session, outside of a transaction. Closes a session that it cannot clean."""
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
