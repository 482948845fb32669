"""Whether an error is an answer of the database, and of what it speaks."""

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import DataError, OperationalError, connection, transaction

from runs.db.errors import DATABASE_ERRORS, do_each, is_gone, is_own
from runs.db.sql import execute, fetch

pytestmark = pytest.mark.django_db


@contextlib.contextmanager
def failing() -> Iterator[list[Exception]]:
    found: list[Exception] = []
    try:
        with transaction.atomic():
            yield found
    except DATABASE_ERRORS as error:
        found.append(error)


@pytest.mark.parametrize(
    ("statement", "parameters", "of_rows"),
    [
        ("SELECT 1 / 0", (), True),
        ("SELECT %s::text", ["\0"], True),  # refused by the driver, without an SQLSTATE
        ("INSERT INTO runs_queue (name) VALUES (NULL)", (), True),
        ("SELECT nothing", (), False),
        ("DO $$ BEGIN RAISE EXCEPTION 'by a trigger' USING ERRCODE = '42501'; END $$", (), False),
        ("DO $$ BEGIN RAISE EXCEPTION 'another session' USING ERRCODE = '55P03'; END $$", (), False),
        ("DO $$ BEGIN RAISE EXCEPTION 'a time-out' USING ERRCODE = '57014'; END $$", (), False),
        ("DO $$ BEGIN RAISE EXCEPTION 'a full disk' USING ERRCODE = '53100'; END $$", (), False),
    ],
)
def test_an_answer_of_the_database_is_no_sign_that_it_is_away(statement: str, parameters: Any, of_rows: bool) -> None:
    with failing() as found:
        execute(statement, parameters)

    [error] = found
    assert not is_gone(error)
    assert is_own(error) is of_rows


def test_a_session_that_ended_and_a_server_that_is_away_are_gone() -> None:
    where = {**connection.get_connection_params(), "cursor_factory": psycopg.Cursor}
    with psycopg.connect(**where) as session, pytest.raises(psycopg.OperationalError) as ended:
        session.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(psycopg.OperationalError) as away:
        psycopg.connect("host=127.0.0.1 port=1 connect_timeout=2")
    read_only = OperationalError("the database server is read-only")  # of runs.db.outage

    for error in (ended.value, away.value, read_only):
        assert is_gone(error) and not is_own(error)


def test_each_is_done_although_one_is_refused_and_then_the_refusal_is_raised() -> None:
    done = []

    def act(number: int) -> int:
        with transaction.atomic():
            fetch("SELECT 1 / %s::int", [number])
        done.append(number)
        return 1

    assert do_each(act, [1, 2]) == 2
    with pytest.raises(DataError):
        do_each(act, [3, 0, 4])
    assert done == [1, 2, 3, 4]
