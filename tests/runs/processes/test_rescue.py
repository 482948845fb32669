"""A process that could not renew its lease is not unseen: neither while the database refused to write nor while it hung."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import OperationalError, connection
from django.db.models.functions import Now
from pytest_django import Settings

from runs.chores.chores import Chores
from runs.db.sql import execute, fetch
from runs.models import Run, Worker
from runs.processes.rescue import Rescuer
from tests.support.runs import make_run
from tests.support.stack import eventually

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rescuer(settings: Settings) -> Rescuer:
    """Of a dispatcher that has been connected for longer than a lease, to a server that has run for longer."""
    age = "SELECT clock_timestamp() - pg_postmaster_start_time() > %s::interval"
    eventually(lambda: fetch(age, [settings.WAKEFUL_LEASE])[0][0])
    rescuer = Rescuer()
    rescuer.away_until -= a_lease(settings)
    return rescuer


@pytest.fixture
def unseen() -> Worker:
    return Worker.objects.create(
        kind="worker", host="h", pid=1, version="1", seen_at=Now() - timedelta(minutes=1), expires_at=Now()
    )


def a_lease(settings: Settings) -> float:
    return float(settings.WAKEFUL_LEASE.total_seconds()) + 0.1


def is_closed(row: Worker) -> bool:
    row.refresh_from_db()
    return row.stopped_at is not None


def test_the_row_of_a_process_that_is_unseen_for_its_lease_is_closed(rescuer: Rescuer, unseen: Worker) -> None:
    rescuer.rescue()
    assert is_closed(unseen)


def test_a_process_that_could_not_write_has_a_lease_to_come_back(
    rescuer: Rescuer, unseen: Worker, settings: Settings
) -> None:
    execute("SET default_transaction_read_only = on")
    with pytest.raises(OperationalError, match="read-only"):
        rescuer.rescue()  # which ends the session

    rescuer.rescue()
    assert not is_closed(unseen)

    rescuer.away_until -= a_lease(settings)
    rescuer.rescue()
    assert is_closed(unseen)


@pytest.mark.parametrize("hangs", ["in the look", "before it waits", "while it waits"])
def test_a_process_of_a_server_that_hung_has_a_lease_to_come_back(
    rescuer: Rescuer, unseen: Worker, settings: Settings, hangs: str
) -> None:
    chores = Chores()
    chores.rescuer = rescuer
    chores.begin_pass()
    if hangs == "while it waits":  # the dispatcher hangs with it
        chores.end_pass(1.0)
        rescuer.pass_began -= 1.0
    rescuer.pass_began -= a_lease(settings) / 2
    if hangs == "before it waits":
        chores.end_pass(0.0)
    chores.begin_pass()

    rescuer.rescue()
    assert not is_closed(unseen)

    chores.end_pass(0.0)
    chores.begin_pass()
    rescuer.away_until -= a_lease(settings)
    rescuer.rescue()
    assert is_closed(unseen)


def test_a_dispatcher_whose_passes_are_slow_for_long_closes_the_rows_of_processes_that_died(
    rescuer: Rescuer, unseen: Worker, settings: Settings
) -> None:
    """It is busy, or its server is slow: each process can renew."""
    half = a_lease(settings) / 2
    for _ in range(8):
        rescuer.begin_pass()
        pass_of(rescuer, half)
        rescuer.rescue()
        rescuer.end_pass(0.0)

    assert is_closed(unseen)


def test_a_dispatcher_that_loses_its_session_again_and_again_closes_the_rows_of_processes_that_died(
    rescuer: Rescuer, unseen: Worker, settings: Settings
) -> None:
    for _ in range(8):
        rescuer.reconnected()
        pass_of(rescuer, a_lease(settings) / 3)
        rescuer.begin_pass()
        rescuer.rescue()

    assert is_closed(unseen)


def test_a_session_that_does_not_end_keeps_no_row_open(rescuer: Rescuer, unseen: Worker) -> None:
    closed = Worker.objects.create(
        kind="worker", host="h", pid=2, version="1", seen_at=Now(), stopped_at=Now(), stopped_reason="unseen"
    )
    run = make_run(status="running", epoch=1, worker=closed, pid=1, claimed_at=Now(), deadline_at=Now())
    with frozen_session(run):
        for _ in range(2):
            rescuer.begin_pass()
            rescuer.rescue()
            rescuer.end_pass(0.0)
            assert is_closed(unseen)
            Worker.objects.filter(id=unseen.id).update(stopped_at=None, stopped_reason="")

    run.refresh_from_db()
    assert run.status == "running"


def pass_of(rescuer: Rescuer, seconds: float) -> None:
    """So long has this pass lasted."""
    rescuer.pass_began -= seconds
    rescuer.hung_until -= seconds
    rescuer.away_until -= seconds


@contextmanager
def frozen_session(run: Run) -> Iterator[None]:
    """The session of the run, on a server that does not end it."""
    session = connection.copy()
    with session.cursor() as cursor:
        cursor.execute("SELECT set_config('application_name', %s, false)", [f"wakeful:{run.id}:{run.epoch}"])
    pid = session.connection.info.backend_pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
        session.close()
