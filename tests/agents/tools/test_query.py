"""The tool query: PostgreSQL decides what it may read, whatever the SQL is."""

import asyncio
from collections.abc import Iterator
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from pydantic_ai import ModelRetry
from pydantic_ai.exceptions import ToolFailed

from agents.library.models import Invoice
from agents.tools import toolbox
from runs.models import AuditEntry
from tests.support.tools import call
from triggers import dispatch_lock as dispatch

pytestmark = pytest.mark.django_db(transaction=True)

ROLE = "wakeful_query_test"
TABLE = Invoice._meta.db_table


def drop(role: str = ROLE) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT FROM pg_roles WHERE rolname = %s", [role])
        if cursor.fetchall():
            cursor.execute(f"DROP OWNED BY {role}")
            cursor.execute(f"DROP ROLE {role}")


@pytest.fixture(autouse=True)
def _role(settings: Any) -> Iterator[None]:
    drop()
    settings.WAKEFUL_QUERY_TABLES = [TABLE]
    settings.WAKEFUL_QUERY_URL = make_role()
    Invoice.objects.create(number="I-1", customer="Ada", email="ada@example.com", amount=120, due_on="2026-11-01")
    yield
    drop()


def make_role() -> str:
    """The URL that the command prints."""
    printed = StringIO()
    call_command("query_role", role=ROLE, stdout=printed)
    return printed.getvalue().partition("WAKEFUL_QUERY_URL=")[2].strip()


def ask(sql: str) -> dict[str, Any]:
    answer: dict[str, Any] = asyncio.run(toolbox.get("query").function(sql))  # type: ignore[arg-type]
    return answer


def test_the_grant_is_in_the_audit_log() -> None:
    granted = AuditEntry.objects.get(kind="database_role", action="grant")

    assert (granted.object_id, granted.detail) == (ROLE, {"tables": [TABLE]})


def test_a_model_reads_an_allowed_table_as_data_of_strangers() -> None:
    called = call("query", {"sql": f"SELECT number, amount, due_on FROM {TABLE} -- all;"})

    assert '"number": "I-1"' in called.results[0]
    assert '"due_on": "2026-11-01"' in called.results[0]
    assert called.done.is_tainted


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM auth_user",
        "SELECT query_to_xml('SELECT * FROM auth_user', true, false, '')",
        "SELECT set_config('role', 'app', false), query_to_xml('SELECT * FROM auth_user', true, false, '')",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT pg_ls_dir('/')",
        "SELECT lo_import('/etc/passwd')",
        f"SELECT set_config('transaction_read_only', 'off', false), nextval('{TABLE}_id_seq')",
    ],
)
def test_postgresql_refuses_everything_else(sql: str) -> None:
    with pytest.raises(ModelRetry, match=r"permission denied|does not exist|cannot set|must be set"):
        ask(sql)


@pytest.mark.parametrize(
    "sql",
    [
        f"DELETE FROM {TABLE}",
        f"WITH gone AS (DELETE FROM {TABLE} RETURNING *) SELECT * FROM gone",
        f"SELECT 1; DELETE FROM {TABLE}",
        f"SELECT 1) AS asked; DELETE FROM {TABLE}; SELECT (1",
        "SELECT 1) AS asked UNION SELECT (SELECT 2",
        "CREATE TEMP TABLE t (i int)",
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "SELECT 1 /*",
        "",
    ],
)
def test_a_statement_that_is_no_query_is_refused_and_changes_nothing(sql: str) -> None:
    with pytest.raises(ModelRetry):
        ask(sql)
    assert Invoice.objects.count() == 1


def test_a_query_that_takes_too_long_ends_whatever_it_sets(settings: Any) -> None:
    from datetime import timedelta

    settings.WAKEFUL_QUERY_TIME = timedelta(milliseconds=200)

    with pytest.raises(ModelRetry, match=r"longer than 0\.2 s"):
        ask("SELECT set_config('statement_timeout', '0', false), pg_sleep(60)")


def test_an_answer_has_a_limit_of_rows_and_characters(settings: Any) -> None:
    settings.WAKEFUL_QUERY_ROWS = 3

    many = ask("SELECT n FROM generate_series(1, 1000) AS n")
    assert many == {"rows": [{"n": 1}, {"n": 2}, {"n": 3}], "cut": "There are more rows."}
    [large] = ask("SELECT repeat('x', 10000000) AS text")["rows"]
    assert len(large) == 10_000
    assert len(str(ask("SELECT repeat('x', 9000) FROM generate_series(1, 3)"))) < 70_000


def test_a_role_that_may_do_more_is_refused(settings: Any) -> None:
    at = settings.DATABASES["default"]
    role_url = settings.WAKEFUL_QUERY_URL
    settings.WAKEFUL_QUERY_URL = (
        f"postgres://{at['USER']}:{at['PASSWORD']}@{at['HOST']}:{at['PORT']}/{connection.settings_dict['NAME']}"
    )
    with pytest.raises(ToolFailed, match="superuser"):
        ask("SELECT 1")

    settings.WAKEFUL_QUERY_URL = role_url
    with connection.cursor() as cursor:
        cursor.execute(f"GRANT SELECT (id) ON auth_user TO {ROLE}")
    with pytest.raises(ToolFailed, match="may read auth_user"):
        ask("SELECT 1")
    call_command("query_role", role=ROLE, stdout=StringIO())
    assert ask("SELECT 1 AS one") == {"rows": [{"one": 1}]}


def test_without_its_settings_the_tool_fails_with_the_cause(settings: Any) -> None:
    settings.WAKEFUL_QUERY_URL = ""

    with pytest.raises(ToolFailed, match="not set up"):
        ask("SELECT 1")


def test_a_server_that_is_away_is_reported_to_the_model(settings: Any) -> None:
    settings.WAKEFUL_QUERY_URL = "postgres://unknown:x@127.0.0.1:1/none"

    with pytest.raises(ToolFailed, match="does not answer"):
        ask("SELECT 1")


def test_the_command_prints_the_statements_where_roles_may_not_be_made(settings: Any) -> None:
    drop()
    printed = StringIO()
    call_command("query_role", role=ROLE, sql=True, stdout=printed)
    assert f'GRANT SELECT ON TABLE "public"."{TABLE}" TO "{ROLE}";' in printed.getvalue()

    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE ROLE plain_app; GRANT SELECT ON ALL TABLES IN SCHEMA public TO plain_app; SET ROLE plain_app"
        )
    try:
        with pytest.raises(CommandError, match=r"permission denied.*\n.*administrator") as refused:
            call_command("query_role", role=ROLE, stdout=StringIO())
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET ROLE")
        drop("plain_app")
    assert "CREATE ROLE" in str(refused.value)
    assert "WAKEFUL_QUERY_URL=postgres://" in str(refused.value)


def test_the_command_names_tables_that_are_not_there(settings: Any) -> None:
    settings.WAKEFUL_QUERY_TABLES = [TABLE, "no_such_table"]

    with pytest.raises(CommandError, match="no_such_table"):
        call_command("query_role", role=ROLE, stdout=StringIO())


LOCK = "pg_advisory_lock(22444, 1)"  # with which Wakeful dispatches
WAYS = [
    f"SELECT {LOCK}, pg_sleep(4)",
    "SELECT pg_catalog . pg_Try_Advisory_Xact_Lock(22444, 1)",
    'SELECT "pg_advisory_xact_lock"(22444, 1)',
    'SELECT U&"pg\\005fadvisory_lock"(22444, 1)',
    """SELECT U&"pg!005fadvisory_lock" UESCAPE '!' (22444, 1)""",
    "SELECT * FROM (VALUES (pg_advisory_lock_shared(22444, 1))) AS held",
    "SELECT query_to_xml('SELECT pg_adv' || 'isory_lock(22444, 1)', true, false, '')",
    "SELECT query_to_xml_and_xmlschema/**/('SELECT pg_adv' || 'isory_lock(22444, 1)', true, false, '')",
    "SELECT query_to_xmlschema(U&'SELECT pg!005fadvisory_lock(22444, 1)' UESCAPE '!', true, false, '')",
    "SELECT ts_stat('SELECT to_tsvector(pg_adv' || 'isory_lock(22444, 1)::text)')",
    "SELECT ts_rewrite('a'::tsquery, 'SELECT ''a''::tsquery, (pg_adv' || 'isory_lock(22444,1)::text)::tsquery')",
]


@pytest.mark.parametrize("sql", WAYS)
def test_a_query_never_holds_the_lock_of_dispatch(sql: str) -> None:
    with pytest.raises(ModelRetry, match="permission denied for"):
        ask(sql)
    with transaction.atomic():
        assert dispatch.try_lock()


def test_the_lock_of_dispatch_is_held_by_a_session_of_the_role_that_does_not_pass_the_tool(settings: Any) -> None:
    """What the refusal is for: PostgreSQL itself refuses it to no role."""
    with psycopg.connect(settings.WAKEFUL_QUERY_URL) as session:
        session.execute(f"SELECT {LOCK}")
        with transaction.atomic():
            assert not dispatch.try_lock()


def test_a_function_that_takes_advisory_locks_is_more_than_the_role_may_call() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE FUNCTION busy() RETURNS void LANGUAGE sql AS 'SELECT {LOCK}'")
    try:
        with pytest.raises(ToolFailed, match=r"may call busy\(\), which takes advisory locks"):
            ask("SELECT busy()")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION busy")


def test_a_session_of_the_role_is_read_only_without_the_tool(settings: Any) -> None:
    with psycopg.connect(settings.WAKEFUL_QUERY_URL) as session, pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        session.execute("CREATE TEMP TABLE t (i int)")


def test_a_query_notifies_no_listener(settings: Any) -> None:
    with psycopg.connect(settings.WAKEFUL_QUERY_URL, autocommit=True) as listener:
        listener.execute("LISTEN eyes")

        ask("SELECT pg_notify('eyes', 'from a model')::text AS it")
        listener.execute("SELECT pg_notify('eyes', 'from the test')")

        assert [notice.payload for notice in listener.notifies(timeout=60, stop_after=1)] == ["from the test"]
