"""The parent's watch, without a worker around it: a pool is a list of processes."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from billiard.context import Process
from celery.concurrency.prefork import TaskPool
from django.db import OperationalError, connection
from django.db.models.functions import Now

from runs.actions.incidents import mute_incident
from runs.incidents.lock import LOCK, SPACE
from runs.models import AgentStop, Incident, Run, Worker
from runs.processes import lease
from runs.worker import parent
from runs.worker.parent import Watch
from tests.support.incidents import fail
from tests.support.late import session
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db


class Child:
    """A process as the pool lists it."""

    def __init__(self) -> None:
        self.sentinel, writer = os.pipe()  # readable once the child, which alone has its other end, is gone
        self.process = subprocess.Popen(["sleep", "60"], pass_fds=[writer])
        os.close(writer)
        self.pid = self.process.pid


class Left(BaseException):
    """The process would have ended here."""


@pytest.fixture
def pool() -> Iterator[list[Any]]:
    pool: list[Any] = []
    yield pool
    for child in pool:
        if isinstance(child, Child):
            child.process.kill()
            child.process.wait()
            os.close(child.sentinel)


@pytest.fixture
def watch(pool: list[Any], monkeypatch: pytest.MonkeyPatch) -> Watch:
    def leave(way: Any) -> None:
        raise Left

    monkeypatch.setattr(parent, "leave_process", leave)
    row = Worker.objects.create(id=uuid4(), kind="worker", host="h", pid=1, version="1", concurrency=1)
    monkeypatch.setattr(parent, "WORKER_ID", row.id)
    return Watch(SimpleNamespace(pool=SimpleNamespace(_pool=SimpleNamespace(_pool=pool))))


def make_running(child: Child, **fields: Any) -> Run:
    run = make_run(ready_at=None)
    values = {"deadline_at": Now(), **fields}
    Run.objects.filter(pk=run.pk).update(
        status="running", worker=parent.WORKER_ID, pid=child.pid, claimed_at=Now(), attempt=1, epoch=1, **values
    )
    return run


def test_a_worker_is_an_incarnation_of_its_own_also_in_a_process_that_had_loaded_this_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = uuid4()
    monkeypatch.setattr(parent, "WORKER_ID", loaded)

    parent.Parent(SimpleNamespace(pool_cls=TaskPool, autoscale=None, concurrency=2))

    assert loaded != parent.WORKER_ID


def test_a_child_that_is_just_being_started_is_left_for_the_next_look(watch: Watch, pool: list[Any]) -> None:
    pool.append(Process())

    watch.track_children()

    assert watch.children == {}


def test_a_run_of_a_child_started_since_the_last_look_is_not_lost(watch: Watch, pool: list[Any]) -> None:
    watch.track_children()
    child = Child()
    pool.append(child)
    run = make_running(child, deadline_at="2100-01-01T00:00Z")

    watch.renew()

    run.refresh_from_db()
    assert (run.status, run.epoch) == ("running", 1)


@pytest.mark.django_db(transaction=True)
def test_mutes_that_a_starting_worker_could_not_end_are_ended_when_it_renews_its_lease(watch: Watch) -> None:
    fail(2)
    incident = Incident.objects.get()
    mute_incident(incident.pk, until="version", by="admin:ada")
    Incident.objects.update(muted_versions=["0.9"])
    watch.leaves_mutes = True

    with session() as frozen:
        frozen.execute(LOCK, [SPACE])
        watch.renew()
        assert watch.leaves_mutes
    watch.renew()

    incident.refresh_from_db()
    assert not watch.leaves_mutes
    assert not incident.is_muted


def test_an_unexpected_error_does_not_end_the_watch(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def look() -> None:
        looks.append(time.monotonic())
        if len(looks) > 1:
            watch.stopped.set()
        raise ValueError("a bug")

    monkeypatch.setattr(watch, "look", look)
    monkeypatch.setattr(connection, "close", lambda: None)
    monkeypatch.setattr(parent, "PAUSE", 0.1)
    watch.run()

    assert len(looks) == 2
    assert looks[1] - looks[0] >= 0.1  # it does not spin either


def test_a_second_sigterm_does_not_prolong_the_grace(watch: Watch) -> None:
    watch.drain()
    first = watch.kill_at
    watch.drain()

    assert watch.kill_at == first


def test_a_stop_without_a_database_ends_nevertheless(
    watch: Watch, pool: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    children = [Child(), Child()]
    pool.extend(children)

    def gone(*arguments: Any, **options: Any) -> None:
        raise OperationalError("the database is away")

    for name in ("drain", "renew", "close_row"):
        monkeypatch.setattr(lease, name, gone)
    monkeypatch.setattr(connection, "close", lambda: None)
    monkeypatch.setattr(parent, "PAUSE", 0.05)
    watch.drain()
    watch.kill_at = time.monotonic() + 0.1

    with pytest.raises(Left):
        watch.run()
    assert [child.process.wait(60) for child in children] == [-signal.SIGKILL] * 2


def test_a_run_that_is_overdue_because_the_database_was_away_may_still_record_its_outcome(
    watch: Watch, pool: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = Child()
    pool.append(child)
    run = make_running(child)
    watch.track_children()

    watch.judge_at = time.monotonic() + 5
    watch.renew()
    run.refresh_from_db()
    assert run.status == "running"

    watch.judge_at = 0.0
    watch.renew()
    run.refresh_from_db()
    assert run.status == "failed"
    assert child.process.wait(60) == -signal.SIGKILL


def test_a_run_of_a_stopped_agent_is_ended_and_waits(watch: Watch, pool: list[Any]) -> None:
    child = Child()
    pool.append(child)
    run = make_running(child, deadline_at="2100-01-01T00:00Z")
    AgentStop.objects.create(agent=run.agent, stopped_by="ann")

    watch.renew()

    run.refresh_from_db()
    assert (run.status, run.ready_at is not None) == ("queued", True)
    assert "an operator has stopped its agent" in run.status_reason
    assert child.process.wait() == -signal.SIGKILL
