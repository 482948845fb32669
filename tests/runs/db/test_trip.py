"""Several statements in one round trip."""

from collections.abc import Iterator

import psycopg
import pytest
from django.db import DataError, IntegrityError, OperationalError, connection, transaction

from runs.db.sql import execute, fetch
from runs.db.trip import one_trip
from runs.models import Queue

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


def test_the_driver_has_what_a_trip_replaces() -> None:
    """Where a newer driver has other names, trips still work, with more round trips and messages."""
    connection.ensure_connection()
    assert hasattr(connection.connection, "_autocommit")
    assert hasattr(psycopg.Pipeline, "_communicate_gen")
