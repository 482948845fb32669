"""Several dispatchers: one works, the others cost nothing, and end only what is stuck."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from unittest.mock import patch

import psycopg
import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from runs.db.sql import execute
from runs.db.trip import Answer, Trip
from runs.models import OutboxMessage, Run
from runs.ports import ports
from runs.queues import stayers
from tests.support.stack import eventually
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch import begin, decisions, failures, leadership
from triggers.dispatch.leadership import LEADER, SESSION, Leadership, look_at_holders
from triggers.dispatch.loop import Dispatcher
from triggers.dispatch_lock import LOCK
from triggers.models import Event

pytestmark = pytest.mark.django_db

TAKE_LOCK = "SELECT pg_advisory_xact_lock(%s::int, %s::int)"


@contextmanager
def another(name: str) -> Iterator[psycopg.Connection]:
    """A session of another process, under this name."""
    where = {**connection.get_connection_params(), "cursor_factory": psycopg.Cursor, "application_name": name}
    with psycopg.connect(**where) as session:
        yield session


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "IDLE", timedelta(milliseconds=50))
    monkeypatch.setattr(leadership, "ACTIVE", timedelta(seconds=60))


def is_alive(session: psycopg.Connection) -> bool:
    try:
        session.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.parametrize(("name", "lives"), [(SESSION, False), ("wakeful", True)])
def test_a_dispatcher_frozen_in_its_transaction_is_ended_and_no_other_process_is(name: str, lives: bool) -> None:
    with another(name) as holder:
        holder.execute(TAKE_LOCK, LOCK)
        time.sleep(0.1)

        look_at_holders()

        assert is_alive(holder) is lives


def test_a_dispatcher_that_works_is_never_ended_however_long_its_transaction_takes() -> None:
    with another(SESSION) as holder:
        holder.execute(TAKE_LOCK, LOCK)
        time.sleep(0.1)
        working = threading.Thread(target=holder.execute, args=("SELECT pg_sleep(0.6)",))
        working.start()
        eventually(lambda: is_active(holder.info.backend_pid))

        look_at_holders()

        working.join()
        assert is_alive(holder)


def is_active(pid: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot(), state FROM pg_stat_activity WHERE pid = %s", [pid])
        return bool(cursor.fetchall()[0][1] == "active")


@pytest.mark.django_db(transaction=True)
def test_what_is_read_along_comes_with_the_lead_and_its_failure_keeps_none_from_leading() -> None:
    with another(SESSION) as other:
        for statement, comes in (("SELECT 42", True), ("SELECT 1 / 0", False)):
            answers: list[Answer] = []
            leader = Leadership()

            assert leader.take(lambda trip, asked=statement, found=answers: found.append(trip.add(asked)))  # type: ignore[misc]

            assert [answer.rows() for answer in answers if answer.has_come] == [[(42,)]] * comes
            assert other.execute("SELECT pg_try_advisory_lock(%s::int, %s::int)", LEADER).fetchone() == (False,)
            leader.release()
            assert other.execute("SELECT pg_try_advisory_lock(%s::int, %s::int)", LEADER).fetchone() == (True,)
            other.execute("SELECT pg_advisory_unlock_all()")
            assert leader.reads_along == comes  # or each event would cost an error


def test_a_standby_reads_and_matches_nothing() -> None:
    make_trigger()
    make_event()
    standby, add = Dispatcher(), Trip.add
    with another(SESSION) as leader:
        leader.execute("SELECT pg_advisory_lock(%s::int, %s::int)", LEADER)
        standby.look()
        with CaptureQueriesContext(connection) as captured, patch.object(Trip, "add", autospec=True) as added:
            added.side_effect = add
            batch, wait = standby.look()
        leader.execute("SELECT pg_advisory_unlock(%s::int, %s::int)", LEADER)  # a closed session keeps it for a moment

    assert not batch.has_progressed and wait <= 1
    statements = [query["sql"] for query in captured] + [call.args[1] for call in added.call_args_list]
    assert added.called
    assert not [statement for statement in statements if re.search(r"event\.received_at|pg_locks", statement)]
    standby.look()
    assert not Event.objects.filter(dispatched_at=None).exists()
    standby.leadership.release()


def test_a_standby_goes_ahead_where_the_leader_is_frozen_between_two_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leadership, "PATIENCE", 0.0)
    standby = Leadership()
    with another(SESSION) as leader:
        leader.autocommit = True
        leader.execute("SELECT pg_advisory_lock(%s::int, %s::int)", LEADER)
        time.sleep(0.1)

        assert standby.take()
        assert not standby.is_held
        assert is_alive(leader)


def test_a_standby_that_goes_ahead_does_not_sleep_past_the_end_of_a_window_that_it_has_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unlike a leader, it owes no look after its own work."""
    monkeypatch.setattr(leadership, "PATIENCE", 0.0)
    make_trigger(policy={"debounce": 1})
    standby = Dispatcher()
    standby.leadership.begin()
    standby.look()
    standby.leadership.release()
    standby.look()
    with another(SESSION) as leader:
        leader.autocommit = True
        leader.execute("SELECT pg_advisory_lock(%s::int, %s::int)", LEADER)
        time.sleep(0.1)
        make_event()
        standby.is_urgent = True

        batch, wait = standby.look()

    assert batch.dispatched == 1 and standby.leadership.stands_by
    assert wait <= 1.0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("statement", ["begin.BEGIN", "decisions.MARK_EVENTS", "stayers.WAKE"])
def test_a_leader_whose_session_is_ended_within_a_batch_connects_again(
    monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """Django opens another session by itself, which has no time-outs and does not hold the lead."""
    make_trigger()
    dispatcher = Dispatcher()
    dispatcher.connect()
    dispatcher.look()
    make_event()
    module, name = statement.split(".")
    where = {"begin": begin, "decisions": decisions, "stayers": stayers}[module]
    parameters = {"begin": "", "decisions": ", %s::uuid[]", "stayers": ", %(queues)s::text[], %(channels)s::text[]"}
    monkeypatch.setattr(failures, "RETRY", 0.0)
    dispatcher.is_urgent = True

    with monkeypatch.context() as ended, pytest.raises(OperationalError):
        ended.setattr(where, name, f"SELECT pg_terminate_backend(pg_backend_pid()){parameters[module]}")
        dispatcher.look()

    connection.close()
    dispatcher.listener.close()
    dispatcher.connect()
    dispatcher.look()
    dispatcher.leadership.release()
    dispatcher.listener.close()
    assert Run.objects.count() == 1 and not Event.objects.filter(dispatched_at=None).exists()


@pytest.mark.django_db(transaction=True)
def test_a_leader_whose_session_is_ended_while_it_delivers_messages_connects_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The messages are tried one by one, in another session: a standby could not end it, if this process froze in a transaction."""
    ended: list[object] = []

    def end(payloads: object) -> None:
        ended.append(payloads)
        execute("SELECT pg_terminate_backend(pg_backend_pid())")

    monkeypatch.setitem(ports.inside, "run.finished", end)
    dispatcher = Dispatcher()
    dispatcher.connect()
    dispatcher.look()
    OutboxMessage.objects.create(topic="run.finished", payload={})
    dispatcher.is_urgent = True

    with pytest.raises(OperationalError):
        dispatcher.look()

    connection.close()
    dispatcher.listener.close()
    assert ended and OutboxMessage.objects.get().attempts == 1  # it holds up nothing else


def test_a_standby_goes_ahead_where_the_leader_is_frozen_while_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "PATIENCE", 0.0)
    monkeypatch.setattr(leadership, "LOOK_EVERY", 0.0)
    standby = Leadership()
    with another(SESSION) as leader:
        leader.autocommit = True
        leader.execute("SELECT pg_advisory_lock(%s::int, %s::int)", LEADER)
        leader.pgconn.send_query(b"SELECT repeat('x', 1000000) FROM generate_series(1, 200)")  # and never read

        try:
            eventually(standby.take)
        finally:
            leader.close()

    assert not standby.is_held


def test_leadership_is_given_back_before_the_process_blocks() -> None:
    first = Leadership()
    assert first.take()
    first.release()
    with another(SESSION) as other:
        assert other.execute("SELECT pg_try_advisory_lock(%s::int, %s::int)", LEADER).fetchone() == (True,)
        assert not first.take()
