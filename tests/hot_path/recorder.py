"""The statements that a leg of a wake sends, and what they cost."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from tempfile import TemporaryFile
from typing import Any, NamedTuple
from unittest.mock import patch
from uuid import UUID

from django.db import connection
from django.db.backends.postgresql.base import ServerBindingCursor
from psycopg.types.json import Json, Jsonb

from runs.db import sql, trip
from runs.db.nudge import NOTIFY
from runs.db.trip import Trip

Cursor = Any
UUIDS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
EXAMPLE_ID = "01990000-0000-7000-8000-000000000000"
TRANSACTIONS = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE SAVEPOINT", "ROLLBACK TO SAVEPOINT", "SET CONSTRAINTS")
COUNTS_WAL = 180000  # the first version of PostgreSQL that counts the WAL of a session
PARAMETER = re.compile(r"%\((\w+)\)s|%s|%%")


@dataclass(frozen=True)
class Sent:
    """A statement and the parameters of its first execution. `times`: how often it was sent."""

    text: str
    parameters: Any
    times: int = 1


class Cost(NamedTuple):
    """What a leg costs, counted by the protocol and by the server: what begins and ends transactions is included. Index entries are
    read from the log of the server, if it is ours."""

    statements: int
    round_trips: int
    wal_records: int
    wal_bytes: int
    index_entries: int


@dataclass
class Recorder:
    """Without what begins and ends transactions, and without the throttled NOTIFY, which depends on the time of the last one."""

    sent: list[Sent] = field(default_factory=list)
    cost: Cost = Cost(0, 0, 0, 0, 0)
    wal: tuple[str, str] = ("", "")  # its place before and after

    def add(self, text: str, parameters: Any, times: int = 1) -> None:
        text = re.sub(r"\n\s*\n", "\n", text.strip())
        if not text.startswith(TRANSACTIONS) and text != NOTIFY:
            self.sent.append(Sent(text, parameters, times))


@contextmanager
def recording() -> Iterator[Recorder]:
    """Record what every cursor of the connection sends, those below Django's too, and every trip."""
    connection.ensure_connection()
    driver: Any = connection.connection
    before, threshold = driver.cursor_factory, driver.prepare_threshold
    driver.prepare_threshold = None  # the fifth execution of a statement prepares it, once, by a round trip of its own
    recorder = Recorder()

    class Recording:
        def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
            recorder.add(_text_of(query), params)
            return super().execute(query, params, **options)  # type: ignore[misc]

        def executemany(self, query: Any, params_seq: Any, **options: Any) -> Any:
            rows = list(params_seq)
            if rows:
                recorder.add(_text_of(query), rows[0], len(rows))
            return super().executemany(query, rows, **options)  # type: ignore[misc]

    class OfClient(Recording, before):  # type: ignore[misc, valid-type]  # the class that the connection has
        pass

    class OfServer(Recording, ServerBindingCursor):
        pass

    class RecordingTrip(Trip):
        def add(self, statement: str, parameters: Any = (), make: Any = None) -> Any:
            recorder.add(statement, parameters)
            return super().add(statement, parameters, make)

    written, since = _wal_of(driver), _place_of(driver)
    driver.cursor_factory = OfClient
    with (
        TemporaryFile("w+") as messages,
        patch.object(trip, "Trip", RecordingTrip),
        patch.object(sql, "ServerBindingCursor", OfServer),
    ):
        driver.pgconn.trace(messages.fileno())
        try:
            yield recorder
        finally:
            driver.pgconn.untrace()
            driver.cursor_factory, driver.prepare_threshold = before, threshold
        messages.seek(0)
        kinds = Counter(tuple(line.split("\t")[1:4:2]) for line in messages)
    records, size = (after - before for after, before in zip(_wal_of(driver), written, strict=True))
    statements = kinds["F", "Query"] + kinds["F", "Execute"]
    recorder.cost = Cost(statements, kinds["B", "ReadyForQuery"], records, size, 0)
    recorder.wal = since, _place_of(driver)


def _wal_of(driver: Any) -> tuple[int, int]:
    """Records and bytes of WAL that this session has written; zeros before PostgreSQL 18, which counts them first."""
    if driver.info.server_version < COUNTS_WAL:
        return 0, 0
    driver.execute("SELECT pg_stat_force_next_flush()")
    [(records, size)] = driver.execute(
        "SELECT wal_records, wal_bytes::bigint FROM pg_stat_get_backend_wal(pg_backend_pid())"
    )
    return records, size


def _place_of(driver: Any) -> str:
    [(place,)] = driver.execute("SELECT pg_current_wal_insert_lsn()::text")
    return str(place)


def _text_of(query: Any) -> str:
    return query if isinstance(query, str) else query.as_string(None) if hasattr(query, "as_string") else query.decode()


def psql(sent: Sent) -> str:
    """The statement for psql: its parameters are variables, with an example for each."""
    examples: dict[str, str] = {}

    def variable(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        name = match[1] or f"p{len(examples) + 1}"
        value = sent.parameters[match[1]] if match[1] else sent.parameters[len(examples)]
        examples[name] = example(value)
        return f":{name}"

    text = PARAMETER.sub(variable, sent.text) if sent.parameters else sent.text
    often = ["-- once for each row"] if sent.times > 1 else []
    return "\n".join(
        [*often, *(f"\\set {name} {_quoted(value)}" for name, value in examples.items()), f"{text.rstrip(';')};"]
    )


def _quoted(literal: str) -> str:
    """A literal as the argument of \\set, which has quotes and backslashes of its own."""
    return "'" + literal.replace("\\", "\\\\").replace("'", "''") + "'"


def example(value: Any) -> str:
    """An SQL literal of the same type that is the same in every run."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case int():
            return "1"
        case float():
            return "1.0"
        case UUID():
            return f"'{EXAMPLE_ID}'::uuid"
        case datetime():
            return "'2026-01-01 00:00:00+00'::timestamptz"
        case timedelta():
            return "'1 second'::interval"
        case Json() | Jsonb():
            return "'{}'::jsonb"
        case bytes() | memoryview():
            return "'\\x00'::bytea"
        case list() | tuple():
            return (
                "'{}'" if not value else "'{" + example(value[0]).split("::")[0].strip("'").replace("{}", '"{}"') + "}'"
            )
        case str():
            return f"'{_example_of_text(str(value))}'"
    raise TypeError(f"no example of {type(value)}")


def _example_of_text(text: str) -> str:
    if UUIDS.fullmatch(text):
        return EXAMPLE_ID
    if text.startswith("{"):  # an object or an array
        return "{}"
    if text.startswith(("[", '"')) or text.isdigit():
        return "0"  # as JSON and as text
    return text if re.fullmatch(r"[a-z_. ]{0,20}", text) else "text"
