"""Emptying the test database after a test that commits, and filling it again with what the migrations put there.

Django truncates every table and saves every object anew, which takes longer than most of these tests."""

from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper


class Pristine:
    """The rows that the migrations made, kept in a schema of their own."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.connection = connection
        self.tables = connection.introspection.django_table_names(only_existing=True, include_views=False)
        self.filled = self._tables_with_rows()
        self._execute(
            "DROP SCHEMA IF EXISTS pristine CASCADE", "CREATE SCHEMA pristine",
            *(f'CREATE TABLE pristine."{table}" AS TABLE "{table}"' for table in self.filled),
        )  # fmt: skip

    def empty(self, sql_list: Sequence[str] = ()) -> None:
        """In place of `connection.ops.execute_sql_flush`."""
        self._execute(*(f'DELETE FROM "{table}"' for table in self._tables_with_rows()))  # noqa: S608

    def refill(self, data: str = "") -> None:
        """In place of `connection.creation.deserialize_db_from_string`."""
        tables = [(f'"{table}"', f'pristine."{table}"') for table in self.filled]
        self._execute(*(f"INSERT INTO {table} TABLE {rows} ON CONFLICT DO NOTHING" for table, rows in tables))

    def _tables_with_rows(self) -> list[str]:
        looks = (f"SELECT '{table}' WHERE EXISTS (SELECT FROM \"{table}\")" for table in self.tables)  # noqa: S608
        with self.connection.cursor() as cursor:
            cursor.execute(" UNION ALL ".join(looks))
            rows: list[Any] = cursor.fetchall()
        return [table for (table,) in rows]

    def _execute(self, *statements: str) -> None:
        """In one transaction: foreign keys are looked at when it commits."""
        with transaction.atomic(), self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
