"""Which SQL statements write, as far as their text tells."""

import re
from typing import Any

from agents.exceptions import Permanent

VERBS = "INSERT|UPDATE|DELETE|MERGE|TRUNCATE|COPY|CREATE|ALTER|DROP|GRANT|REVOKE|REFRESH|REINDEX|COMMENT|LOCK|CALL|DO|IMPORT|SECURITY"
BEFORE = r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*"
WRITES = re.compile(
    rf"{BEFORE}(?:({VERBS})\b|WITH\b.*[()]\s*(?:(INSERT)\s+INTO|(UPDATE)|(DELETE)\s+FROM|(MERGE)\s+INTO)\b)",
    re.I | re.S,
)


def text_of(statement: Any) -> str:
    """A statement as Django's wrappers are handed it: text, or psycopg's composed SQL."""
    return statement if isinstance(statement, str) else str(statement.as_string(None))


def is_write(text: str) -> bool:
    return WRITES.match(text) is not None


def refuse_write(text: str) -> None:
    """Permanent where the statement writes, as PostgreSQL refuses it in a session that only reads."""
    if found := WRITES.match(text):
        raise writing_refused(f"cannot execute {found[found.lastindex or 0].upper()} in a read-only transaction")


def writing_refused(said: str) -> Permanent:
    """PostgreSQL's refusal of a write outside of a transactional step, with the fix."""
    return Permanent(
        f"a durable agent may only read here ({said}). Write in a transactional step: "
        'run.step("name", function), which is the default effect'
    )
