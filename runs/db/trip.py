"""Several statements in one round trip. Where one fails, the server skips those after it: a COMMIT among them commits only if
all before it succeeded.

The statements go to libpq directly: a cursor takes longer to send a short statement than the server to execute it.
"""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any
from uuid import UUID

import psycopg
from django.db import InternalError, NotSupportedError, connection
from psycopg import generators
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus

from runs.db.outage import raise_if_away
from runs.db.sql import Parameters, Query, array_of
from runs.failpoints import failpoint, is_armed

PLACEHOLDER = re.compile(r"%\((\w+)\)s|%s|%%")
DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
# What the driver's ways to dump and load a type depend on; the server reports changes.
SETTINGS = (b"client_encoding", b"DateStyle", b"TimeZone", b"IntervalStyle")
_numbers = count()  # of prepared statements


@dataclass(frozen=True)
class Statement:
    """A statement as the server reads it. `names` is the order of named parameters."""

    text: bytes
    names: Sequence[str]

    def in_order(self, parameters: Parameters) -> Sequence[Any]:
        return [parameters[name] for name in self.names] if isinstance(parameters, Mapping) else parameters


@lru_cache(maxsize=256)
def numbered(statement: str) -> Statement:
    """Replace the driver's placeholders by those of the server. A parameter gets its type from its cast."""
    numbers: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        return f"${numbers.setdefault(match[1] or str(len(numbers)), len(numbers) + 1)}"

    return Statement(PLACEHOLDER.sub(number, statement).encode(), tuple(numbers))


def transformer_of(driver: Any) -> tuple[Any, str]:
    """How to dump and load the types that this connection has met, and the encoding of its texts. A body may change what that depends
    on. The connection has it: a list of all connections would keep those that are closed."""
    settings = [driver.pgconn.parameter_status(name) for name in SETTINGS]
    kept = getattr(driver, "_of_trips", None)
    if kept is None or kept[0] != settings:
        kept = driver._of_trips = settings, Transformer(driver), driver.info.encoding
    return kept[1], kept[2]


def as_text(value: Any, transformer: Any, encoding: str = "utf-8") -> Any:
    """A parameter as the server reads it; as the driver dumps it, but the most frequent types faster."""
    if value is None:
        return None
    if isinstance(value, str):
        if "\0" in value:
            raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        return value.encode(encoding)
    match value:
        case bool():
            return b"t" if value else b"f"
        case int():
            return b"%d" % value
        case float():
            return repr(value).encode()
        case UUID():
            return value.hex.encode()
        case []:
            return b"{}"
        case [UUID(), *_]:
            return array_of(value).encode()
    return transformer.get_dumper(value, PyFormat.TEXT).dump(value)


class Answer:
    """The answer to one statement of a trip, to be read after the trip."""

    def __init__(self, transformer: Any, make: Callable[..., Any] | None) -> None:
        self._transformer, self._make = transformer, make
        self.result: Any = None

    @property
    def has_come(self) -> bool:
        return self.result is not None

    def take(self, result: Any) -> None:
        self.result = result

    def rows(self) -> list[Any]:
        result, make = self.result, self._make
        self._transformer.set_pgresult(result)
        rows: list[Any] = self._transformer.load_rows(0, result.ntuples, tuple)
        if make is None:
            return rows
        names = [result.fname(column).decode() for column in range(result.nfields)]
        return [make(**dict(zip(names, row, strict=True))) for row in rows]


Asked = tuple[Statement, Sequence[Any], Answer]


class Trip:
    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._transformer, self._encoding = transformer_of(driver)
        self._asked: list[Asked] = []

    def add(self, statement: str, parameters: Parameters = (), make: Callable[..., Any] | None = None) -> Answer:
        """`make` is called with the columns of each row as keyword arguments."""
        asked = numbered(statement)
        values = [as_text(value, self._transformer, self._encoding) for value in asked.in_order(parameters)]
        answer = Answer(self._transformer, make)
        self._asked.append((asked, values, answer))
        return answer

    def add_all(self, queries: Iterable[Query]) -> None:
        for query in queries:
            self.add(*query)

    def wait(self) -> None:
        """Send the statements so far, if any, and wait for their answers."""
        asked, self._asked = self._asked, []
        if not asked:
            return
        pgconn = self._driver.pgconn
        with self._driver.lock:
            pgconn.enter_pipeline_mode()
            try:
                failed = self._driver.wait(self._exchanged(asked))
                pgconn.exit_pipeline_mode()
            finally:
                # Interrupted: what comes next would be taken for the answer to a later statement.
                if pgconn.status == ConnStatus.OK and pgconn.pipeline_status:
                    pgconn.finish()
        if failed is not None:
            raise error_from_result(failed, encoding=pgconn._encoding)

    def _exchanged(self, asked: Sequence[Asked]) -> Generator[Any, Any, Any]:
        """Send, and take the answers; return the result of the statement that failed, if any."""
        pgconn, failed = self._driver.pgconn, None
        expected = [take for one in asked for take in self._send(*one)]
        pgconn.pipeline_sync()
        try:
            yield from generators.send(pgconn)
            for take in expected:
                result = yield from self._next()
                if result.status in DONE:
                    take(result)
                elif result.status == ExecStatus.FATAL_ERROR:
                    failed = failed or result
            yield from self._next()  # the end of the trip
        except psycopg.DatabaseError:
            if failed is None:  # else it is the reason: the server ends the session
                raise
        return failed

    def _next(self) -> Generator[Any, Any, Any]:
        if results := (yield from generators.fetch_many(self._driver.pgconn)):
            return results[0]
        raise psycopg.OperationalError("the server sent no answer")

    def _send(self, statement: Statement, values: Sequence[Any], answer: Answer) -> Iterator[Callable[[Any], None]]:
        """Send a statement, prepared at its first use; what to do with the results, if they are no errors.

        Its name is in the list of the driver, which forgets all of them where a statement may have removed them from the server."""
        pgconn, prepared = self._driver.pgconn, self._driver._prepared
        if prepared.prepare_threshold is None:  # none shall be prepared
            pgconn.send_query_params(statement.text, values)
            yield answer.take
            return
        key = (statement.text, ())
        if name := prepared._names.get(key):
            prepared._names.move_to_end(key)
        else:
            name = b"wakeful_%d" % next(_numbers)
            pgconn.send_prepare(name, statement.text)
            yield lambda _: prepared._names.update({key: name})
        pgconn.send_query_prepared(name, values)
        yield answer.take


def commit_in(trip: Trip) -> Answer | None:
    """Commit the caller's transaction. None: it is inside another transaction, and commits as usual."""
    return None if connection.savepoint_ids else trip.add("COMMIT")


def reach(point: str, trip: Trip) -> None:
    """The failpoint, with the statements so far executed."""
    if is_armed(point):
        trip.wait()
    failpoint(point)


@contextmanager
def one_trip(*, begins: bool = True) -> Iterator[Trip]:
    """Statements in a transaction, which begins here unless one is open; without `begins` it is an implicit one, which ends with them.
    They may end it themselves. The errors are those of Django. Nothing is sent before the end of the block."""
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    driver: Any = connection.connection
    trip = Trip(driver)
    if begins and driver.info.transaction_status == TransactionStatus.IDLE:
        trip.add(driver._get_tx_start_command().decode())  # as it was configured, such as READ WRITE
    try:
        with connection.wrap_database_errors:
            yield trip
            trip.wait()
    except (InternalError, NotSupportedError) as error:
        raise_if_away(connection, error)
        raise
