"""A session whose way to the server stands still ends, although nothing on the way has closed it."""

import sys
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest
from django.db import connection

from runs.db import standstill
from runs.db.listen import KEEPALIVES, set_timeouts
from tests.support.cables import Cable, cabling

pytestmark = [pytest.mark.django_db, pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's TCP_INFO")]


@pytest.fixture
def cable() -> Iterator[Cable]:
    with cabling() as lay:
        yield lay(int(connection.get_connection_params()["port"]))


def connect(cable: Cable) -> "psycopg.Connection[object]":
    given = connection.get_connection_params()
    names = ("dbname", "host", "user", "password")
    return psycopg.connect(**{name: given[name] for name in names}, port=cable.port, autocommit=True)


def test_a_statement_without_an_answer_fails_after_its_time(cable: Cable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standstill, "LONGEST", 0.5)
    monkeypatch.setattr(standstill, "LOOK_EVERY", 0.05)
    monkeypatch.setattr(standstill, "_thread", None)
    session = connect(cable)
    standstill.watch(session)
    cable.silence()

    with session, pytest.raises(psycopg.OperationalError):
        session.execute("SELECT 1")


def test_one_that_takes_its_time_and_one_that_waits_for_nothing_go_on(
    cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle, busy = connect(cable), connect(cable)
    for session in (idle, busy):
        standstill.watch(session)
    working = threading.Thread(target=busy.execute, args=("SELECT pg_sleep(0.3)",))
    working.start()
    time.sleep(0.1)
    standstill.cut_off_silent()  # LONGEST is not over
    working.join()
    monkeypatch.setattr(standstill, "LONGEST", 0.0)
    standstill.cut_off_silent()

    for session in (idle, busy):
        assert session.execute("SELECT 1").fetchone() == (1,)
        session.close()


def test_postgresql_forgets_the_sessions_of_a_host_that_vanished() -> None:
    with connection.cursor() as cursor:
        set_timeouts()
        for name, value in KEEPALIVES.items():
            cursor.execute("SELECT current_setting(%s)", [name])
            assert cursor.fetchone() == (value,)
