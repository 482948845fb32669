"""What keeps the database from cleaning up is found, and its owner named."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection

from config.health.problems import problems
from config.health.situation import read_situation
from runs.db.signs import inactive_slots
from runs.db.signs.inactive_slots import INACTIVE_SLOTS
from runs.db.signs.oldest_transaction import OLDEST_TRANSACTION


@contextmanager
def neighbour(**options: Any) -> Iterator[psycopg.Connection[Any]]:
    parameters = {**connection.get_connection_params(), "cursor_factory": psycopg.Cursor, **options}
    with psycopg.connect(**parameters) as other:
        yield other


@pytest.mark.django_db(transaction=True)
def test_an_idle_session_in_a_transaction_is_named_with_the_statement_that_ends_it(settings: Any) -> None:
    settings.WAKEFUL_ALARM_TRANSACTION = timedelta(milliseconds=1)

    with neighbour(application_name="report") as other:
        other.execute("SELECT 1")
        [found] = read_situation()[OLDEST_TRANSACTION]
        [problem] = [one for one in problems(read_situation()) if one.name == "transaction"]

        assert (found.application, found.pid) == ("report", other.info.backend_pid)
        assert problem.remedy.endswith(f"SELECT pg_terminate_backend({found.pid})")
        assert problem.is_alarm
        other.rollback()

    assert read_situation()[OLDEST_TRANSACTION] == []


@pytest.mark.django_db(transaction=True)
def test_an_inactive_replication_slot_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with neighbour(autocommit=True) as other:
        other.execute("SELECT pg_create_physical_replication_slot('forgotten', true)")
        try:
            assert read_situation()[INACTIVE_SLOTS] == []  # it keeps next to nothing yet
            monkeypatch.setattr(inactive_slots, "BYTES", -1)

            [slot] = read_situation()[INACTIVE_SLOTS]
        finally:
            other.execute("SELECT pg_drop_replication_slot('forgotten')")

    assert slot.name == "forgotten"
