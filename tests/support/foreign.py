"""A database whose changes Wakeful reads and which it does not own: one of its own on a test server, and a role with no more rights
than the docs ask for."""

from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg

PASSWORD = "no-secret-of-tests"  # noqa: S105


class ForeignDatabase:
    def __init__(self, server_url: str) -> None:
        self.name = f"foreign_{uuid4().hex[:12]}"
        self.role = self.slot = self.publication = self.name
        self.server_url = server_url
        parts = urlsplit(server_url)
        self.owner_url = urlunsplit(parts._replace(path=f"/{self.name}"))
        self.url = f"postgresql://{self.role}@{parts.hostname}:{parts.port}/{self.name}"

    def __enter__(self) -> Self:
        with psycopg.connect(self.server_url, autocommit=True) as session:
            session.execute(f"CREATE DATABASE {self.name}")
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
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = %s", [self.name]
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
