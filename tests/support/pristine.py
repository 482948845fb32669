"""Tests that commit leave every table as the migrations left it: their rows are copied once, and put back by the server.

Django's own way, to empty all tables and to save every row again from Python, takes longer than most of these tests.
"""

from functools import cache

from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import TransactionStatus

from runs.attempt.clean_session import renew

# No trigger fires then, those of foreign keys included. For the whole session: each change of it would have all statements planned again.
AS_REPLICA = "SET session_replication_role = replica"
# A statement of a function is planned once a session, one that is put together each time: with a hundred tables that is most of the
# work. Rows that the migrations left are seldom touched: they are put back where one of them is another version, or missing.
KEEP = """
DO $$
DECLARE
  kept name;
  filled boolean;
  body text := '';
BEGIN
  CREATE SCHEMA pristine;
  CREATE TABLE pristine.versions (of_table name PRIMARY KEY, known text);
  FOR kept IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
    EXECUTE format('SELECT EXISTS (SELECT FROM public.%I)', kept) INTO filled;
    IF NOT filled THEN
      body := body || format(E'  DELETE FROM public.%I;\n', kept);
      CONTINUE;
    END IF;
    EXECUTE format('CREATE TABLE pristine.%I AS TABLE public.%I', kept, kept);
    INSERT INTO pristine.versions VALUES (kept);
    body := body || format($table$
      SELECT concat(count(*), ' ', sum(xmin::text::bigint)) INTO now FROM public.%1$I;
      IF now IS DISTINCT FROM (SELECT known FROM pristine.versions WHERE of_table = %1$L) THEN
        DELETE FROM public.%1$I;
        INSERT INTO public.%1$I SELECT * FROM pristine.%1$I;
        SELECT concat(count(*), ' ', sum(xmin::text::bigint)) INTO now FROM public.%1$I;
        UPDATE pristine.versions SET known = now WHERE of_table = %1$L;
      END IF;
    $table$, kept);
  END LOOP;
  EXECUTE format(
    'CREATE FUNCTION pristine.put_back() RETURNS void LANGUAGE plpgsql AS %L',
    E'DECLARE now text;\nBEGIN\n' || body || 'END'
  );
END $$
"""
# A table that a test has made has no statement in it.
PUT_BACK = "SELECT pristine.put_back()"

EMPTY = """
DO $$
BEGIN
  EXECUTE (SELECT 'TRUNCATE ' || string_agg(format('public.%I', tablename), ', ') FROM pg_tables WHERE schemaname = 'public');
END $$
"""


def copy() -> str:
    """Copy the freshly migrated database; the name of the copy, empty if nothing is migrated."""
    name = connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        if "django_migrations" not in connection.introspection.table_names(cursor):
            return ""
    connection.close()  # nothing may be connected to a database that is copied
    with connection._nodb_cursor() as cursor:
        cursor.execute(f'CREATE DATABASE "{name}_copy" TEMPLATE "{name}"')
    return f"{name}_copy"


@cache
def _session() -> BaseDatabaseWrapper:
    """A session of its own: that of a test is closed at its end, and a new one costs as much as what is done here."""
    session = connections.create_connection(DEFAULT_DB_ALIAS)
    with session.cursor() as cursor:
        cursor.execute(AS_REPLICA)
    return session


def keep() -> None:
    """Remember the rows of a freshly migrated database."""
    with _session().cursor() as cursor:
        cursor.execute(KEEP)


def make_empty() -> None:
    """Every table in a new file, as the migrations left it."""
    with _session().cursor() as cursor:
        cursor.execute(EMPTY)
    put_back()


def put_back() -> None:
    """Every table as it was when `keep` was called; committed."""
    _end_transaction()
    with _session().cursor() as cursor:
        cursor.execute(PUT_BACK)


def renew_session() -> None:
    """The next test begins with the settings and locks of a new session, and with one that has read the catalogs."""
    _end_transaction()
    renew()


def _end_transaction() -> None:
    """A transaction that the test left open would keep its locks from those that put rows back, and the next test inside it."""
    driver = connection.connection
    if driver is not None and (
        connection.in_atomic_block or not driver.autocommit or driver.info.transaction_status != TransactionStatus.IDLE
    ):
        connection.close()


def close() -> None:
    _session().close()
    _session.cache_clear()
