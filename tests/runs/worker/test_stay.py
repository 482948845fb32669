"""A child that stays waits for a NOTIFY, claims, and leaves its session as it found it; it gives way to other work."""

import os
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from runs.claim import Claim, Nothing
from runs.db.sql import execute, fetch
from runs.db.trip import one_trip
from runs.models import Worker
from runs.queues.stayers import LOCK, SPACE, Stayers
from runs.worker import board
from runs.worker.stay import next_run
from tests.support.runs import AGENTS, make_run
from tests.support.stack import eventually

pytestmark = pytest.mark.django_db(transaction=True)
QUEUE = "default"


@pytest.fixture(autouse=True)
def child(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[None]:
    """This process is the first of two children, and stays longer than any test waits."""
    settings.WAKEFUL_STAY = timedelta(minutes=10)
    of_two = board.Board(2)
    of_two.place, of_two.pid = 0, os.getpid()
    monkeypatch.setattr(board, "board", of_two)
    yield
    connection.close()


@pytest.fixture
def other() -> Iterator[psycopg.Connection[Any]]:
    """The session of another process."""
    given = connection.get_connection_params()
    wanted = {name: given[name] for name in ("host", "port", "user", "password", "dbname") if name in given}
    with psycopg.connect(**wanted, autocommit=True) as session:
        yield session


def once_it_waits(other: psycopg.Connection[Any], then: Callable[[], object]) -> threading.Thread:
    """Do something as soon as this process holds the lock of its queue, which it takes in the test's own thread."""
    held = f"SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = {SPACE} AND granted)"  # noqa: S608

    def act() -> None:
        eventually(lambda: other.execute(held).fetchone() == (True,))
        then()
        connection.close()

    thread = threading.Thread(target=act)
    thread.start()
    return thread


def is_as_found(other: psycopg.Connection[Any]) -> bool:
    """The lock is free, and this session listens to nothing."""
    [(listens,)] = fetch("SELECT EXISTS (SELECT FROM pg_listening_channels())")
    return not listens and other.execute(LOCK, [QUEUE]).fetchone() == (True,)


def wake() -> bool:
    """As the dispatcher does for a run that it has made ready."""
    stayers = Stayers()
    with transaction.atomic(), one_trip() as trip:
        stayers.commit([QUEUE], trip)
    return not stayers.left({QUEUE: 1})


def test_a_child_that_stays_claims_the_run_for_which_it_is_woken_again_and_again(worker: Worker, other: Any) -> None:
    for _ in range(2):
        run = make_run(ready_at=None)

        def begin(run: Any = run) -> None:
            other.execute("UPDATE runs_run SET ready_at = clock_timestamp() WHERE id = %s", [run.id])
            assert wake()

        thread = once_it_waits(other, begin)
        found = next_run(worker.id, QUEUE, AGENTS)
        thread.join()

        assert isinstance(found, Claim) and found.run_id == run.id and found.is_named
        assert is_as_found(other)
        other.execute("SELECT pg_advisory_unlock_all()")
        execute(
            "UPDATE runs_run SET status = 'failed', worker_id = NULL, pid = NULL, finished_at = now() WHERE id = %s",
            [run.id],
        )


def test_woken_for_a_run_that_it_cannot_claim_it_does_not_wait_on(worker: Worker, other: Any) -> None:
    make_run(agent="of another worker")
    thread = once_it_waits(other, wake)

    assert next_run(worker.id, QUEUE, AGENTS) == Nothing("")

    thread.join()
    assert is_as_found(other)


def test_it_gives_way_once_no_other_child_is_free(worker: Worker, other: Any) -> None:
    """Its own is the next that another queue, or a task of the user's own, may have."""

    def begin_a_task() -> None:
        board.board.memory[1] = board.BUSY

    thread = once_it_waits(other, begin_a_task)
    assert next_run(worker.id, QUEUE, AGENTS) is None
    thread.join()
    assert is_as_found(other)


def test_two_children_do_not_wait_for_one_queue(worker: Worker, other: Any) -> None:
    other.execute(LOCK, [QUEUE])

    assert next_run(worker.id, QUEUE, AGENTS) is None

    other.execute("SELECT pg_advisory_unlock_all()")
    assert is_as_found(other)


def test_a_session_that_ends_meanwhile_ends_the_stay(worker: Worker, other: Any) -> None:
    [(pid,)] = fetch("SELECT pg_backend_pid()")
    thread = once_it_waits(other, lambda: other.execute("SELECT pg_terminate_backend(%s)", [pid]))

    found = next_run(worker.id, QUEUE, AGENTS)
    thread.join()

    assert found == Nothing("")  # there may be a claim whose answer was lost
    assert board.board.memory[0] == board.BUSY


def test_a_pause_of_the_queue_holds_for_a_child_that_stays(worker: Worker, other: Any) -> None:
    make_run(ready_at=None)

    def pause_and_wake() -> None:
        other.execute(
            "INSERT INTO runs_queue (name, paused_at, paused_reason, paused_by) VALUES (%s, now(), '', '')", [QUEUE]
        )
        other.execute("UPDATE runs_run SET ready_at = clock_timestamp()")
        assert wake()

    thread = once_it_waits(other, pause_and_wake)
    assert next_run(worker.id, QUEUE, AGENTS) == Nothing("")
    thread.join()
