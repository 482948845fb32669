"""A database whose changes Wakeful reads and which it does not own: one of its own on a test server, and a role with no more rights
than the docs ask for."""

import time
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg

from triggers.sources.continuity import Marks, compare
from triggers.sources.databases.slot import ReplicationSlot
from triggers.sources.databases.slot_reader import SlotReader
from triggers.sources.runner import Assignment, Batch, Poison, Received, SourceError

PATIENCE = 30.0
PASSWORD = "no-secret-of-tests"  # noqa: S105


class ForeignDatabase:
    def __init__(self, server_url: str, *, encoding: str = "UTF8") -> None:
        self.encoding = encoding
        self.name = f"foreign_{uuid4().hex[:12]}"
        self.role = self.slot = self.publication = self.name
        self.server_url = server_url
        parts = urlsplit(server_url)
        self.owner_url = urlunsplit(parts._replace(path=f"/{self.name}"))
        self.url = f"postgresql://{self.role}@{parts.hostname}:{parts.port}/{self.name}"

    def __enter__(self) -> Self:
        with psycopg.connect(self.server_url, autocommit=True) as session:
            session.execute(
                f"CREATE DATABASE {self.name} ENCODING '{self.encoding}' TEMPLATE template0 LOCALE_PROVIDER libc LOCALE 'C'"
            )
            session.execute(f"CREATE ROLE {self.role} LOGIN REPLICATION PASSWORD '{PASSWORD}'")
        self.session = psycopg.connect(self.owner_url, autocommit=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.session.close()
        with psycopg.connect(self.server_url, autocommit=True) as session:
            drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s"
            session.execute(
                "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE database = %s",
                [self.name],
            )
            session.execute(drop, [self.name])
            session.execute(f"DROP DATABASE {self.name} WITH (FORCE)")
            session.execute(f"DROP ROLE {self.role}")

    @property
    def settings(self) -> dict[str, Any]:
        """Of a source that reads it."""
        return {"url": self.url, "slot": self.slot, "publication": self.publication}

    def run(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        cursor = self.session.execute(statement, parameters or None)
        return cursor.fetchall() if cursor.description else []

    def publish(self, *tables: str) -> None:
        """What `manage.py slot create` does. A slot waits for open transactions that have written, also in other databases."""
        self.run("SET statement_timeout = '30s'")
        self.run(f"CREATE PUBLICATION {self.publication} FOR TABLE {', '.join(tables)}")
        self.run(f"SELECT pg_create_logical_replication_slot('{self.slot}', 'pgoutput')")


class Reading:
    """Reads a slot as the process does: the position is kept with the messages, and then the batch is confirmed."""

    def __init__(self, foreign: ForeignDatabase, **settings: Any) -> None:
        self.settings = ReplicationSlot().clean_settings({**foreign.settings, **settings})
        self.position: Any = None
        self.marks: Marks = {}
        self.messages: list[Received | Poison] = []
        self.reader: Any = None
        self.has_crashed = False

    def connect(self) -> SlotReader:
        """Also while the server still ends the connection of a reader that is gone."""
        while True:
            try:
                return self._connect()
            except SourceError as error:
                if not (self.reader is None and self.has_crashed and "in use" in str(error)):
                    raise
                time.sleep(0.05)

    def _connect(self) -> SlotReader:
        assignment = Assignment(
            slug="shop", settings=self.settings, secret=PASSWORD, position=self.position, marks=self.marks
        )
        reader = ReplicationSlot().connect(assignment)
        assert isinstance(reader, SlotReader)
        self.reader = reader
        return reader

    def read(self, count: int, *, confirm: bool = True) -> list[Any]:
        """The next gaps and messages, at least so many."""
        found: list[Any] = []
        deadline = time.monotonic() + PATIENCE
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count}"
            found += self.look(confirm=confirm)
        return found

    def look(self, *, confirm: bool = True) -> list[Any]:
        reader = self.reader or self.connect()
        batch: Batch = reader.read(0.2)
        self._record(batch)
        if batch.failure:
            self.crash()
        elif confirm and (batch.messages or batch.receipt is not None):
            reader.confirm(batch)
        self.messages += batch.messages
        return [*batch.gaps, *batch.messages]

    def _record(self, batch: Batch) -> None:
        gaps, self.marks = compare(self.marks, batch.spans)
        assert not gaps
        if batch.position is not None:
            self.position = batch.position

    def crash(self) -> None:
        self.reader.close()
        self.reader, self.has_crashed = None, True
