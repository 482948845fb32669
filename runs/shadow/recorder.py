"""Record the changes of an open transaction: its statements, and the number of rows per table."""

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import connection
from psycopg.types.json import Json, Jsonb

from agents.exceptions import Permanent
from agents.guards.sql_writes import is_write, text_of

MOST = 200  # statements
LONGEST = 2_000  # characters of a statement, and of its parameters
# The counts of this transaction, plus those of earlier ones that the session has not reported yet.
COUNTS = """
SELECT relid::regclass::text, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_xact_user_tables
WHERE n_tup_ins + n_tup_upd + n_tup_del > 0
"""
SAVEPOINT = re.compile(r'\s*(SAVEPOINT|ROLLBACK TO SAVEPOINT)\s+"?([^";\s]+)', re.I)
ENDS = re.compile(
    r"^\s*(?:COMMIT|END|ABORT|BEGIN|START\s+TRANSACTION|PREPARE\s+TRANSACTION|ROLLBACK(?!\s+TO))\b"
    r"|;\s*(?:COMMIT|ROLLBACK(?!\s+TO))\b",
    re.I,
)

VERBS = ("inserted", "updated", "deleted")
Counts = Counter[tuple[str, str]]  # rows by (table, "inserted", "updated" or "deleted")


@dataclass(kw_only=True)
class Statement:
    """A statement that writes. `rows` is the number of affected rows, -1 if unknown; `state` is empty, "failed" or "undone"."""

    sql: str
    parameters: str
    rows: int = -1
    state: str = ""


@dataclass(frozen=True, kw_only=True)
class TableChange:
    table: str
    inserted: int
    updated: int
    deleted: int


class Recorder:
    """An execute wrapper of Django's that refuses statements which end the transaction."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.count = 0  # of statements, including those beyond MOST
        self._marks: dict[str, _Mark] = {}
        self._undone: Counts = Counter()
        self._before = _counts()

    def __call__(self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        text = text_of(sql)
        if ENDS.search(text):
            raise Permanent(f"a shadow run is one transaction, so its body must not execute {text.strip()[:100]!r}")
        savepoint = SAVEPOINT.match(text)
        if savepoint is None:
            return self._record(text, params, many, lambda: execute(sql, params, many, context), context)
        result = execute(sql, params, many, context)
        verb, name = savepoint.groups()
        if verb.upper() == "SAVEPOINT":
            self._marks[name] = _Mark(len(self.statements), _counts(), self._undone)
        else:
            self._take_back_to(self._marks[name])
        return result

    def changes(self) -> list[TableChange]:
        """The changed rows per table, without changes that were rolled back. PostgreSQL counts no rows for a TRUNCATE."""
        changed = _counts() - self._before - self._undone
        tables = sorted({table for table, _ in changed})
        return [TableChange(table=table, **{verb: changed[table, verb] for verb in VERBS}) for table in tables]

    def _record(self, text: str, params: Any, many: bool, execute: Callable[[], Any], context: Any) -> Any:
        if not is_write(text):
            return execute()
        self.count += 1
        statement = Statement(sql=text.strip()[:LONGEST], parameters=_shown(params, many))
        if self.count <= MOST:
            self.statements.append(statement)
        try:
            result = execute()
        except BaseException:
            statement.state = "failed"
            raise
        statement.rows = context["cursor"].rowcount
        return result

    def _take_back_to(self, mark: "_Mark") -> None:
        # PostgreSQL still counts changes that were rolled back to a savepoint.
        self._undone = _counts() - mark.counts + mark.undone
        for statement in self.statements[mark.position :]:
            statement.state = statement.state or "undone"


@dataclass(frozen=True)
class _Mark:
    """The counts at a savepoint."""

    position: int
    counts: Counts
    undone: Counts


def _counts() -> Counts:
    # With the driver itself: Django's cursor would call the recorder.
    rows = connection.connection.execute(COUNTS).fetchall()
    return Counter({(table, verb): count for table, *counts in rows for verb, count in zip(VERBS, counts, strict=True)})


def _shown(params: Any, many: bool) -> str:
    """Parameters as JSON, for people."""
    if not params:
        return ""
    given = list(params) if many or not isinstance(params, dict) else params
    text = json.dumps(
        given, ensure_ascii=False, default=lambda value: value.obj if isinstance(value, Json | Jsonb) else str(value)
    )
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
