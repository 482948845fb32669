"""Several statements in one round trip."""

import gc
import signal
import weakref
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from math import inf
from threading import Thread
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import DataError, IntegrityError, NotSupportedError, OperationalError, connection, transaction

from runs.db.sql import execute, fetch
from runs.db.trip import one_trip
from runs.models import Queue
from runs.states import RunStatus

pytestmark = pytest.mark.django_db(transaction=True)

INSERT = "INSERT INTO runs_queue (name, paused_reason, paused_by) VALUES (%s, '', '')"


def queues() -> list[str]:
    return list(Queue.objects.order_by("name").values_list("name", flat=True))


@pytest.fixture
def another() -> Iterator[psycopg.Connection]:
    connection.ensure_connection()
    driver = connection.connection
    with psycopg.connect(driver.info.dsn, password=driver.info.password, autocommit=True) as session:
        yield session


def test_a_trip_begins_and_commits(another: psycopg.Connection) -> None:
    with transaction.atomic():
        with one_trip() as trip:
            row = trip.add("SELECT %s::int AS one, %s::text AS two", [1, "two"], dict)
            trip.add("COMMIT")
            after = trip.add("SELECT txid_current_if_assigned()")
        assert row.rows() == [{"one": 1, "two": "two"}]
        assert after.rows() == [(None,)]
        assert connection.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_what_is_written_before_belongs_to_the_transaction() -> None:
    with transaction.atomic():
        Queue.objects.create(name="before")
        with one_trip() as trip:
            trip.add(INSERT, ["in-it"])
            trip.add("COMMIT")
    assert queues() == ["before", "in-it"]


def test_where_a_statement_fails_those_after_it_are_skipped_and_work_the_next_time() -> None:
    """The first error is raised, and a statement that was skipped before it was prepared is prepared later."""
    for _ in range(4):
        with pytest.raises(DataError, match="division by zero"), transaction.atomic(), one_trip() as trip:
            trip.add(INSERT, ["taken-back"])
            failed = trip.add("SELECT 1 / %s::int", [0])
            skipped = trip.add("SELECT %s::text || 'after'", [""])
            trip.add("COMMIT")
        assert not failed.has_come
        assert not skipped.has_come
    assert queues() == []

    with transaction.atomic(), one_trip() as trip:
        again = trip.add("SELECT %s::text || 'after'", ["the one "])
    assert again.rows() == [("the one after",)]


def test_the_errors_are_those_of_django() -> None:
    with pytest.raises(IntegrityError), transaction.atomic(), one_trip() as trip:
        trip.add(INSERT, ["one"])
        trip.add(INSERT, ["one"])


def test_a_session_that_was_ended_raises_and_the_next_one_works(another: psycopg.Connection) -> None:
    [(pid,)] = fetch("SELECT pg_backend_pid()")
    with pytest.raises(OperationalError), transaction.atomic():
        execute("SELECT 1")
        another.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        with one_trip() as trip:
            trip.add("SELECT 1")
    assert fetch("SELECT 1") == [(1,)]


def test_an_isolation_level_of_the_settings_holds() -> None:
    connection.ensure_connection()
    connection.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    try:
        with transaction.atomic(), one_trip() as trip:
            level = trip.add("SELECT current_setting('transaction_isolation')")
        assert level.rows() == [("repeatable read",)]
    finally:
        connection.connection.isolation_level = None


def test_statements_that_the_body_removed_from_the_server_are_prepared_again() -> None:
    for removes in ("DISCARD ALL", "DEALLOCATE ALL"):
        with transaction.atomic(), one_trip() as trip:
            trip.add("SELECT %s::int", [1])
            trip.add("COMMIT")
        execute(removes)
        with transaction.atomic(), one_trip() as trip:
            again = trip.add("SELECT %s::int", [2])
            trip.add("COMMIT")
        assert again.rows() == [(2,)]


def test_a_statement_whose_plan_is_outdated_works_the_next_time() -> None:
    with transaction.atomic():
        execute("CREATE TEMP TABLE changes (one int)")
    select = "SELECT * FROM changes"
    with transaction.atomic(), one_trip() as trip:
        trip.add(select)
    with transaction.atomic():
        execute("ALTER TABLE changes ADD two int")
    for _ in range(2):
        try:
            with transaction.atomic(), one_trip() as trip:
                answer = trip.add(select)
        except NotSupportedError:  # cached plan must not change result type
            continue
    assert answer.rows() == []
    execute("DROP TABLE changes")


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("text", "ä 'quoted' \\ %s"),
        ("int", -3),
        ("bigint", 2**40),
        ("boolean", True),
        ("float8", 1e-7),
        ("float8", inf),
        ("uuid", UUID("01990000-0000-7000-8000-000000000000")),
        ("interval", timedelta(days=-1, seconds=3.25)),
        ("text[]", []),
        ("text[]", ["a", '{b,"c"}', ""]),
        ("uuid[]", [UUID(int=1)]),
        ("text", RunStatus.QUEUED),
        ("text", None),
        ("timestamptz", datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
    ],
)
def test_parameters_arrive_as_by_a_cursor(type_: str, value: Any) -> None:
    with transaction.atomic(), one_trip() as trip:
        answer = trip.add(f"SELECT %(it)s::{type_}::text, '%%', %(it)s::{type_}::text", {"it": value})
    [(text, percent, same)] = answer.rows()
    assert [(text,)] == fetch(f"SELECT %s::{type_}::text", [value])
    assert (percent, same) == ("%", text)


def test_a_text_with_a_null_character_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(DataError, match="NUL"), transaction.atomic(), one_trip() as trip:
        trip.add(INSERT, ["one"])
        trip.add(INSERT, ["tw\0o"])
    assert queues() == []


def test_an_interruption_between_question_and_answer_closes_the_session(another: psycopg.Connection) -> None:
    """What comes next would be the answer to another statement."""

    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    [(pid,)] = fetch("SELECT pg_backend_pid()")
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(Interrupted), transaction.atomic(), one_trip() as trip:
            trip.add("SELECT pg_sleep(20)")
            signal.setitimer(signal.ITIMER_REAL, 0.2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        another.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])  # the server goes on with the statement
    connection.close()
    assert fetch("SELECT 1") == [(1,)]


def test_the_driver_has_what_a_trip_uses() -> None:
    connection.ensure_connection()
    prepared = connection.connection._prepared
    assert isinstance(prepared._names, dict)
    assert prepared.prepare_threshold is not None


def test_texts_go_and_come_in_the_encoding_that_the_session_has_now() -> None:
    ask = "SELECT length(%s::text), %s::text, %s::text[]"
    try:
        for encoding in ("UTF8", "LATIN1", "UTF8"):
            execute(f"SET client_encoding TO '{encoding}'")
            with one_trip() as trip:
                answer = trip.add(ask, ["Grüße", "Grüße", ["Grüße"]])
                trip.add("COMMIT")
            assert answer.rows() == [(5, "Grüße", ["Grüße"])]
    finally:
        connection.close()


def test_a_closed_connection_is_let_go() -> None:
    """A durable run has one for each thread of its steps, and each outage ends one."""
    ended: list[Any] = []

    def step() -> None:
        with one_trip() as trip:
            trip.add("SELECT %s::text, now()", ["one"])
            trip.add("COMMIT")
        ended.append(weakref.ref(connection.connection))
        connection.close()

    for _ in range(3):
        thread = Thread(target=step)
        thread.start()
        thread.join()
    gc.collect()
    assert [one() for one in ended] == [None, None, None]
