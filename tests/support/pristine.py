"""Tests that commit leave every table as the migrations left it: their rows are copied once, and put back by the server.

Django's own way, to empty all tables and to save every row again from Python, takes longer than most of these tests.
"""

from functools import cache

from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import TransactionStatus

from runs.attempt.clean_session import renew

KEEP = """
DO $$
DECLARE kept name; filled boolean;
BEGIN
  CREATE SCHEMA pristine;
  FOR kept IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
    EXECUTE format('SELECT EXISTS (SELECT FROM public.%I)', kept) INTO filled;
    IF filled THEN
      EXECUTE format('CREATE TABLE pristine.%I AS TABLE public.%I', kept, kept);
    END IF;
  END LOOP;
END $$
"""
# As a replica, no trigger fires, those of foreign keys included.
PUT_BACK = """
DO $$
DECLARE used name;
BEGIN
  SET LOCAL session_replication_role = replica;
  FOR used IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
    EXECUTE format('DELETE FROM public.%I', used);
  END LOOP;
  FOR used IN SELECT tablename FROM pg_tables WHERE schemaname = 'pristine' LOOP
    EXECUTE format('INSERT INTO public.%I SELECT * FROM pristine.%I', used, used);
  END LOOP;
END $$
"""

EMPTY = """
DO $$
BEGIN
  SET LOCAL session_replication_role = replica;
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
    return connections.create_connection(DEFAULT_DB_ALIAS)


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
