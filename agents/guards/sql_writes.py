"""Recognize SQL statements that write, by their text."""

import re
from collections.abc import Callable
from typing import Any

from agents.exceptions import Permanent

VERBS = "INSERT|UPDATE|DELETE|MERGE|TRUNCATE|COPY|CREATE|ALTER|DROP|GRANT|REVOKE|REFRESH|REINDEX|COMMENT|LOCK|CALL|DO|IMPORT|SECURITY"
BEFORE = r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*"
WRITES = re.compile(
    rf"{BEFORE}(?:({VERBS})\b|WITH\b.*[()]\s*(?:(INSERT)\s+INTO|(UPDATE)|(DELETE)\s+FROM|(MERGE)\s+INTO)\b)",
    re.I | re.S,
)


def text_of(statement: Any) -> str:
    """The text of a statement as Django's execute wrappers get it: text, or psycopg's composed SQL."""
    return statement if isinstance(statement, str) else str(statement.as_string(None))


def is_write(text: str) -> bool:
    return WRITES.match(text) is not None


def refuse_write(text: str, refused: Callable[[str], Permanent] | None = None) -> None:
    """Raise Permanent if the statement writes, as PostgreSQL does in a read-only session; `refused` words it."""
    if found := WRITES.match(text):
        said = f"cannot execute {found[found.lastindex or 0].upper()} in a read-only transaction"
        raise (refused or writing_refused)(said)


def gate_writing_refused(said: str) -> Permanent:
    """The error for a write of a gate, with the fix."""
    return Permanent(f"a gate only reads ({said}). Write in the body, or return what is to be kept as Fire(state=…)")


def writing_refused(said: str) -> Permanent:
    """The error for a write outside of a transactional step, with the fix."""
    return Permanent(
        f"a durable agent may only read here ({said}). Write in a transactional step: "
        'run.step("name", function), which is the default effect'
    )
