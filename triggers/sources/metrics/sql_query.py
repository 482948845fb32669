from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import psycopg

from triggers.sources.databases.connection import conninfo, fault_of
from triggers.sources.kind import register
from triggers.sources.metrics.metric import Metric, MetricReader, MetricSettings, as_number, is_none, now
from triggers.sources.metrics.samples import MOST_SERIES, Sample, named
from triggers.sources.runner import Assignment, Reader, SourceError
from triggers.sources.settings import InvalidSettings, setting, whole_number

CONNECT_SECONDS = 10
# A server that is gone without a word is found out.
ALIVE: dict[str, Any] = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
# For the session, so that also a statement that the query's functions run is read-only and stops in time.
OPTIONS = "-c default_transaction_read_only=on -c statement_timeout={seconds}s -c lock_timeout=5s -c application_name=wakeful-metric"


@dataclass(frozen=True, kw_only=True)
class SqlQuerySettings(MetricSettings):
    """The query, and how long it may take."""

    query: str = setting(
        "",
        "Query",
        "One SELECT. Its last column is the number; the columns before it name the series, one row each.",
    )
    seconds: int = setting(10, "Time-out", "Seconds after which the server stops the query.", check=whole_number(1, 40))

    def __post_init__(self) -> None:
        if not self.query.strip():
            raise InvalidSettings({"query": "must not be empty"})


@register
class SqlQuery(Metric[SqlQuerySettings]):
    name = "sql_query"
    label = "SQL query"
    help_text = "Runs a query on a PostgreSQL database, in a read-only transaction with a time-out. The answer's numbers are samples."
    settings_class = SqlQuerySettings
    secret_label = "Connection string"  # noqa: S105  (a label)
    setup = (
        "Create a role that may read the tables of the query and nothing else: a read-only transaction alone does not stop a "
        "function with effects outside of the database.",
        "Enter the connection string as the secret: postgresql://role:password@host:5432/database?sslmode=verify-full.",
        "Write the query: its last column is the number, the columns before it name the series.",
        "When some samples are there, try detectors on them and arm one.",
    )

    def clean_secret(self, secret: str) -> str:
        cleaned = super().clean_secret(secret)
        if fault := fault_in(cleaned):
            raise InvalidSettings({"secret": fault})
        return cleaned

    def connect(self, assignment: Assignment[SqlQuerySettings]) -> Reader:
        return SqlReader(assignment, target=assignment.settings.query)


class SqlReader(MetricReader):
    """Connects for each query, so that no session idles at the server."""

    def samples(self) -> Sequence[Sample]:
        if not self.assignment.secret:
            raise SourceError("It has no connection string.", remedy="Enter it as the secret of the source.")
        rows = rows_of(self.assignment.secret, self.settings.query, seconds=self.settings.seconds, most=MOST_SERIES + 1)
        return [sample_of(row) for row in rows if not is_none(row[-1])]


def fault_in(connection_string: str) -> str:
    """The forbidden part of the query, or an empty text."""
    try:
        given = psycopg.conninfo.conninfo_to_dict(connection_string)
    except psycopg.ProgrammingError:
        return "must be a connection string of PostgreSQL"
    if not (given.get("host") or given.get("hostaddr")):
        return "must name the host of the server"
    return fault_of(given, also=frozenset({"password"}))


def rows_of(connection_string: str, query: str, *, seconds: int, most: int) -> list[tuple[Any, ...]]:
    """The first rows of a query's answer. Raises SourceError."""
    if fault := fault_in(connection_string):  # one that was entered when more was accepted
        raise SourceError(f"The connection string {fault}.", remedy="Enter another one as the secret of the source.")
    try:
        with psycopg.connect(
            conninfo(connection_string),
            connect_timeout=CONNECT_SECONDS,
            options=OPTIONS.format(seconds=seconds),
            autocommit=False,
            **ALIVE,
        ) as connection:
            rows = list(_streamed(connection, query, most))
    except psycopg.Error as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise SourceError(
            f"The query failed: {said[0]}", remedy="Check the query, the connection string and the rights of its role."
        ) from None
    if rows and not rows[0]:
        raise SourceError("The answer of the query has no column.", remedy="Select a number as the last column.")
    return rows


def _streamed(connection: psycopg.Connection[Any], query: str, most: int) -> Iterator[tuple[Any, ...]]:
    """Row by row: an answer of a billion rows is not read into memory. A stream is one statement, never several."""
    with connection.cursor() as cursor:
        rows = cursor.stream(query.encode())
        try:
            yield from islice(rows, most)
        finally:
            connection.cancel()
            connection.close()


def sample_of(row: tuple[Any, ...]) -> Sample:
    value = as_number(row[-1])
    if value is None:
        raise SourceError("The last column of the answer is no number.", remedy="Select a number as the last column.")
    return Sample(series=named(" ".join(str(part) for part in row[:-1])), at=now(), value=value)
