"""Makes the database role that the tool `query` reads with, or prints its SQL for an administrator of the database."""

from argparse import ArgumentParser
from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.core.management.base import CommandError
from django.db import DatabaseError, connection, transaction
from psycopg import errors, sql

from runs.db.sql import fetch, fetch_column
from runs.management.command import BaseCommand
from runs.management.operator import operator
from runs.models.audit import record_about

ROLE = "wakeful_query"
CONNECTIONS = 20  # of all workers together
MISSING = "SELECT wanted FROM unnest(%s::text[]) AS wanted WHERE to_regclass(wanted) IS NULL"
TABLES = """
SELECT DISTINCT space.nspname, class.relname FROM unnest(%s::text[]) AS wanted
JOIN pg_class class ON class.oid = to_regclass(wanted) JOIN pg_namespace space ON space.oid = class.relnamespace ORDER BY 1, 2
"""
# Also by column. Revoking all of a table revokes those as well.
GRANTED = """
SELECT table_schema, table_name FROM information_schema.table_privileges WHERE grantee = %(role)s
UNION SELECT table_schema, table_name FROM information_schema.column_privileges WHERE grantee = %(role)s ORDER BY 1, 2
"""
NOT_ALLOWED = """This database user may not do that: {why}.
Give these statements to an administrator of the database:

{statements}

Then set, for every process:
{url}"""


class Command(BaseCommand):
    help = "Make the read-only role of the tool query, with SELECT on WAKEFUL_QUERY_TABLES alone; safe to repeat."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--role", default=ROLE, help=f"its name; default: {ROLE}")
        parser.add_argument("--sql", action="store_true", help="print the statements, and execute nothing")

    def handle(self, *, role: str, **options: Any) -> None:
        if not settings.WAKEFUL_QUERY_TABLES:
            raise CommandError("WAKEFUL_QUERY_TABLES is empty: set it to the tables and views that agents may read.")
        if missing := fetch_column(MISSING, [settings.WAKEFUL_QUERY_TABLES]):
            raise CommandError(
                f"WAKEFUL_QUERY_TABLES: there is no table or view {', '.join(missing)} in this database."
            )
        password = "" if _exists(role) else token_urlsafe(24)
        statements = _statements(role, password)
        url = _url(role, password or "<its password>")
        if options["sql"]:
            self.stdout.write("\n".join(f"{statement};" for statement in statements) + f"\n-- {url}")
            return
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                record_about(operator(), "grant", "database_role", role, tables=settings.WAKEFUL_QUERY_TABLES)
        except DatabaseError as error:
            if not isinstance(error.__cause__, errors.InsufficientPrivilege):
                raise
            raise CommandError(
                NOT_ALLOWED.format(
                    why=str(error.__cause__).partition("\n")[0],
                    statements="\n".join(f"{statement};" for statement in statements),
                    url=url,
                )
            ) from None
        if password:
            self.stdout.write(f"Role {role} is made. Set, for every process:\n{url}")
        else:
            self.stdout.write(f"Role {role} may read {', '.join(settings.WAKEFUL_QUERY_TABLES)}, and nothing else.")


def _exists(role: str) -> bool:
    return bool(fetch("SELECT FROM pg_roles WHERE rolname = %s", [role]))


def _statements(role: str, password: str) -> list[str]:
    """The statements that create the role, or limit it to reading these tables. The settings are a second fence: the
    tool sets the same for each query.
    """
    name = sql.Identifier(role)
    milliseconds = sql.Literal(f"{round(settings.WAKEFUL_QUERY_TIME.total_seconds() * 1000)}ms")
    wanted = fetch(TABLES, [settings.WAKEFUL_QUERY_TABLES])
    made = [
        sql.SQL("ALTER ROLE {} SET default_transaction_read_only = on").format(name),
        sql.SQL("ALTER ROLE {} SET statement_timeout = {}").format(name, milliseconds),
        sql.SQL("ALTER ROLE {} SET idle_in_transaction_session_timeout = '30s'").format(name),
        *(
            sql.SQL("REVOKE ALL ON TABLE {} FROM {}").format(sql.Identifier(*table), name)
            for table in fetch(GRANTED, {"role": role})
        ),
        sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(sql.Identifier(_database()), name),
        *(
            sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(sql.Identifier(schema), name)
            for schema in dict.fromkeys(schema for schema, _ in wanted)
        ),
        *(sql.SQL("GRANT SELECT ON TABLE {} TO {}").format(sql.Identifier(*table), name) for table in wanted),
    ]
    if password:
        attributes = "LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT NOREPLICATION NOBYPASSRLS"
        create = sql.SQL("CREATE ROLE {} " + attributes + " CONNECTION LIMIT {} PASSWORD {}")
        made.insert(0, create.format(name, sql.Literal(CONNECTIONS), sql.Literal(password)))
    connection.ensure_connection()
    return [statement.as_string(connection.connection) for statement in made]


def _database() -> str:
    return str(fetch_column("SELECT current_database()")[0])


def _url(role: str, password: str) -> str:
    at = settings.DATABASES["default"]
    host, port = quote(str(at["HOST"] or "127.0.0.1"), safe="[]:"), at["PORT"] or 5432
    return f"WAKEFUL_QUERY_URL=postgres://{quote(role)}:{password}@{host}:{port}/{quote(_database())}"
