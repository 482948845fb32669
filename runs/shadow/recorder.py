"""What a transaction changes, while it is open: its statements, and the rows of each table."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import connection
from psycopg.types.json import Json, Jsonb

from agents.exceptions import Permanent
from agents.guards.sql_writes import is_write, text_of

MOST = 200  # statements
LONGEST = 2_000  # characters of a statement, and of its parameters
# Of this transaction, and what the session has not yet told of those before it.
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

Counts = dict[str, tuple[int, int, int]]  # rows inserted, updated and deleted, by table
NONE = (0, 0, 0)


@dataclass(kw_only=True)
class Statement:
    """One that writes. `rows` is how many it touched, -1 where that is not said; `state` is empty, "failed" or "undone"."""

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
    """An execute wrapper of Django's; within it, the transaction cannot be ended by a statement."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.count = 0  # of statements, those beyond MOST as well
        self._marks: dict[str, _Mark] = {}
        self._undone: Counts = {}
        self._before = _counts()

    def __call__(self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        text = text_of(sql)
        if ENDS.search(text):
            raise Permanent(f"a shadow run is one transaction, so nothing in it may say {text.strip()[:100]!r}")
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
        """Of the tables that changed, without what was taken back. Of a truncated one PostgreSQL counts no rows."""
        changed = _sum(_counts(), self._before, self._undone)
        return [
            TableChange(table=table, inserted=inserted, updated=updated, deleted=deleted)
            for table, (inserted, updated, deleted) in sorted(changed.items())
            if inserted or updated or deleted
        ]

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
        # PostgreSQL goes on counting what a savepoint has taken back.
        self._undone = _sum(_counts(), mark.counts, {table: _negative(of) for table, of in mark.undone.items()})
        for statement in self.statements[mark.position :]:
            statement.state = statement.state or "undone"


@dataclass(frozen=True)
class _Mark:
    """How things stood at a savepoint."""

    position: int
    counts: Counts
    undone: Counts


def _counts() -> Counts:
    # By the driver itself: Django's cursor would ask the recorder.
    rows = connection.connection.execute(COUNTS).fetchall()
    return {table: (inserted, updated, deleted) for table, inserted, updated, deleted in rows}


def _sum(now: Counts, *less: Counts) -> Counts:
    """What is left of these counts, of those tables that have any."""
    left: Counts = {}
    for table, counted in now.items():
        others = [other.get(table, NONE) for other in less]
        inserted, updated, deleted = (
            count - sum(other[index] for other in others) for index, count in enumerate(counted)
        )
        left[table] = (inserted, updated, deleted)
    return left


def _negative(counts: tuple[int, int, int]) -> tuple[int, int, int]:
    inserted, updated, deleted = counts
    return -inserted, -updated, -deleted


def _shown(params: Any, many: bool) -> str:
    """Parameters as JSON, for people."""
    if not params:
        return ""
    given = list(params) if many or not isinstance(params, dict) else params
    text = json.dumps(
        given, ensure_ascii=False, default=lambda value: value.obj if isinstance(value, Json | Jsonb) else str(value)
    )
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
