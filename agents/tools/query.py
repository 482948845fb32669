"""Reading the database by SQL of a model. PostgreSQL limits what it may read: the session is that of a role of its own, which may read
the tables of WAKEFUL_QUERY_TABLES and nothing else. `manage.py query_role` makes it.

Advisory locks need no right, and with some of them Wakeful dispatches. To take the right to call them from PUBLIC would need a
superuser, and break other users of the database; so the SQL must not name them, nor a function that executes a text, in which a name
can be put together.
"""

import asyncio
import json
import re
from typing import Annotated, Any

import psycopg
from django.conf import settings
from pydantic import Field
from pydantic_ai import ModelRetry
from pydantic_ai.exceptions import ToolFailed

from agents.tools.toolbox import tool

ROW, ALL = 10_000, 60_000  # most characters of a row, and of an answer
CONNECT = 5  # seconds
NOT_SET_UP = "The tool query is not set up here: WAKEFUL_QUERY_TABLES and WAKEFUL_QUERY_URL must be set."
NOT_TO_CALL = re.compile(
    r"pg_(?:try_)?advisory_\w+|(?:query|cursor)_to_xml\w*|ts_stat|ts_rewrite|crosstab\w*|connectby|xpath_table|dblink\w*",
    re.IGNORECASE,
)
ESCAPED = re.compile(r"u&[\"']", re.IGNORECASE)  # in which a name can be written with the numbers of its letters
# What the role may do besides reading the tables it is meant for. Tables of extensions, such as statistics, are left out.
TOO_MUCH = """
WITH own AS (
  SELECT class.oid, class.oid::regclass::text AS name FROM pg_class class
  JOIN pg_namespace space ON space.oid = class.relnamespace
  WHERE class.relkind IN ('r', 'p', 'v', 'm', 'f') AND space.nspname <> 'information_schema' AND space.nspname NOT LIKE 'pg\\_%%'
    AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = class.oid AND deptype = 'e')
)
SELECT 'is superuser, or may make roles, databases or replicas, or passes row security' AS it FROM pg_roles
WHERE rolname = current_user AND (rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls)
UNION ALL
SELECT 'is a member of ' || rolname FROM pg_roles
WHERE rolname <> current_user AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
  AND pg_has_role(current_user, oid, 'MEMBER')
UNION ALL
SELECT 'may change ' || name FROM own WHERE has_table_privilege(oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
UNION ALL
SELECT 'may read ' || name FROM own
WHERE has_any_column_privilege(oid, 'SELECT') AND oid NOT IN (
  SELECT to_regclass(wanted) FROM unnest(%s::text[]) AS wanted WHERE to_regclass(wanted) IS NOT NULL)
UNION ALL
SELECT 'may create objects in schema ' || nspname FROM pg_namespace
WHERE nspname NOT LIKE 'pg\\_%%' AND has_schema_privilege(oid, 'CREATE')
UNION ALL
SELECT 'may call ' || routine.oid::regprocedure || ' with the rights of its owner' FROM pg_proc routine
WHERE routine.prosecdef AND has_function_privilege(routine.oid, 'EXECUTE')
  AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_proc'::regclass AND objid = routine.oid AND deptype = 'e')
UNION ALL
SELECT 'may call ' || routine.oid::regprocedure || ', which takes advisory locks' FROM pg_proc routine
JOIN pg_namespace space ON space.oid = routine.pronamespace
WHERE routine.prosrc ~* 'pg_(try_)?advisory_' AND routine.prorettype <> 'trigger'::regtype AND space.nspname <> 'pg_catalog'
  AND has_function_privilege(routine.oid, 'EXECUTE')
LIMIT 5
"""


READABLE = ", ".join(settings.WAKEFUL_QUERY_TABLES) or "none"


@tool(
    effect="read",
    description=f"Read data by one SQL query of PostgreSQL. The tables: {READABLE}. Their columns stand in "
    "information_schema.columns. A long answer is cut.",
)
async def query(sql: Annotated[str, Field(max_length=10_000)]) -> dict[str, Any]:
    if not (settings.WAKEFUL_QUERY_TABLES and settings.WAKEFUL_QUERY_URL):
        raise ToolFailed(NOT_SET_UP)
    if refused := NOT_TO_CALL.search(sql) or ESCAPED.search(sql):
        raise ModelRetry(f"permission denied for {refused[0]}: ask without it.")
    seconds = settings.WAKEFUL_QUERY_TIME.total_seconds()
    try:
        async with asyncio.timeout(CONNECT + 2 * seconds):
            return await _answer(sql.strip().rstrip(";"), seconds)
    except (TimeoutError, psycopg.errors.QueryCanceled):
        raise ModelRetry(f"It takes longer than {seconds:g} s. Ask for less.") from None
    except psycopg.errors.InsufficientPrivilege as error:
        tables = ", ".join(settings.WAKEFUL_QUERY_TABLES)
        raise ModelRetry(f"{_said(error)}. The tables that may be read are {tables}.") from None
    except psycopg.OperationalError as error:
        raise ToolFailed(f"The database does not answer: {_said(error)}") from None
    except psycopg.Error as error:
        raise ModelRetry(_said(error)) from None


async def _answer(sql: str, seconds: float) -> dict[str, Any]:
    async with await psycopg.AsyncConnection.connect(
        settings.WAKEFUL_QUERY_URL, connect_timeout=CONNECT, autocommit=True, application_name="wakeful query"
    ) as connection:
        # Of a transaction, so that it holds behind any pooler. In a query these can no longer be changed for that query.
        await connection.execute("BEGIN READ ONLY")
        await connection.execute(f"SET LOCAL statement_timeout = {round(seconds * 1000)}")
        await connection.execute("SET LOCAL lock_timeout = 1000")
        if too_much := [it async for (it,) in await connection.execute(TOO_MUCH, [settings.WAKEFUL_QUERY_TABLES])]:
            raise ToolFailed(
                f"The role of WAKEFUL_QUERY_URL {', '.join(too_much)}: that is more than reading WAKEFUL_QUERY_TABLES. "
                "`manage.py query_role` makes one that fits."
            )
        # One whole statement by itself, so that the brackets around it below stay its own. (binary: the protocol in which a
        # text is one statement.)
        await connection.execute(f"PREPARE asked AS {sql}", binary=True)
        cursor = await connection.execute(
            f"SELECT left(to_jsonb(asked)::text, {ROW}) FROM (\n{sql}\n) AS asked LIMIT {settings.WAKEFUL_QUERY_ROWS + 1}",  # noqa: S608
            binary=True,
        )
        rows = [row for (row,) in await cursor.fetchall()]
        await connection.rollback()  # a read-only transaction may notify listeners, once it is committed
        return _bounded(rows)


def _bounded(rows: list[str]) -> dict[str, Any]:
    shown: list[Any] = []
    length = 0
    for row in rows[: settings.WAKEFUL_QUERY_ROWS]:
        length += len(row)
        if length > ALL:
            break
        shown.append(row if len(row) == ROW else json.loads(row))
    return {"rows": shown, **({"cut": "There are more rows."} if len(shown) < len(rows) else {})}


def _said(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).partition("\n")[0]
