"""A run that cannot be read or claimed stops no other run: it ends, or stands aside, and the runs behind it go on."""

import os
from typing import Any
from uuid import uuid4

import pytest
from django.db import DataError, transaction
from django.db.models.functions import Now

from agents import Agent, AgentRun, registry
from runs import tasks
from runs.db.sql import execute
from runs.models import Attempt, Run, Worker
from runs.processes.lease import wakeful_version
from runs.processes.rescue import Rescuer
from runs.worker import parent
from runs.worker.parent import Watch
from tests.support.runs import make_run
from tests.support.triggers import make_event

pytestmark = pytest.mark.django_db(transaction=True)

TOO_DEEP = "[" * 985 + "]" * 985
NEVER_CLAIMED = 2**31 - 1  # its next epoch is out of range


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the agent of this process's worker was given."""
    done: list[Any] = []
    worker = a_worker(version=wakeful_version())
    monkeypatch.setattr(parent, "WORKER_ID", worker.id)
    body = Agent(name="greeter", body=lambda run: done.append(run.input))
    monkeypatch.setattr(registry, "_agents", {"greeter": body})
    return done


def a_worker(version: str) -> Worker:
    return Worker.objects.create(
        id=uuid4(), kind="worker", host="h", pid=1, version=version, agents=["greeter"], queues=["default"]
    )


def bad_and_good(**fields: Any) -> tuple[Run, list[Run]]:
    bad = make_run(event_id=make_event().id, **fields)
    return bad, [make_run(event_id=make_event().id) for _ in range(3)]


def statuses(runs: list[Run]) -> set[str]:
    return set(Run.objects.filter(pk__in=[run.pk for run in runs]).values_list("status", flat=True))


@pytest.mark.parametrize("timeout", ["5m", None, {"soft": 1}, 1e300, -1])
def test_a_timeout_of_another_version_stops_no_claim(done: list[Any], timeout: Any) -> None:
    bad, good = bad_and_good(policy={"timeout": timeout})

    tasks.doorbell("default")

    assert statuses([bad, *good]) == {"succeeded"}


@pytest.mark.parametrize("column", ["input", "policy"])
def test_a_run_that_cannot_be_read_fails_and_shows_it(done: list[Any], column: str) -> None:
    bad, good = bad_and_good()
    execute(f"UPDATE runs_run SET {column} = %s::jsonb WHERE id = %s::uuid", [TOO_DEEP, bad.pk])  # noqa: S608

    tasks.doorbell("default")

    assert statuses(good) == {"succeeded"}
    [(status, reason, error)] = Run.objects.filter(pk=bad.pk).values_list("status", "status_reason", "error")
    assert (status, len(done)) == ("failed", 3)
    assert "cannot be read by version" in reason
    assert "RecursionError" in error
    assert [attempt.outcome for attempt in Attempt.objects.filter(run=bad)] == ["failed"]


def test_a_run_that_another_version_may_read_is_left_to_it_for_a_while(done: list[Any]) -> None:
    a_worker(version="a newer one")
    bad, good = bad_and_good()
    execute("UPDATE runs_run SET input = %s::jsonb WHERE id = %s::uuid", [TOO_DEEP, bad.pk])

    for _ in range(4):
        tasks.doorbell("default")
        assert statuses(good) == {"succeeded"}
        Run.objects.filter(pk=bad.pk, status="queued").update(ready_at=Now(), due_at=None)

    assert statuses([bad]) == {"failed"}
    assert [attempt.number for attempt in Attempt.objects.filter(run=bad)] == [1, 2, 3, 4]


def test_a_run_that_cannot_be_claimed_stands_aside(done: list[Any]) -> None:
    bad, good = bad_and_good(epoch=NEVER_CLAIMED)

    tasks.doorbell("default")

    assert statuses(good) == {"succeeded"}
    bad = Run.objects.get(pk=bad.pk)
    assert (bad.status, bad.ready_at, bad.due_at is not None) == ("queued", None, True)
    assert "cannot be claimed: integer out of range" in bad.status_reason


def test_a_run_that_cannot_be_claimed_costs_the_one_before_it_nothing(done: list[Any]) -> None:
    first = make_run(event_id=make_event().id, policy={"retries": 0})
    bad, good = bad_and_good(epoch=NEVER_CLAIMED)

    tasks.doorbell("default")

    assert statuses([first, *good]) == {"succeeded"}
    assert statuses([bad]) == {"queued"}
    assert [attempt.number for attempt in Attempt.objects.filter(run=first)] == [1]


def run_by(worker: Worker, *runs: Run) -> None:
    for pid, run in enumerate(runs):
        Run.objects.filter(pk=run.pk).update(
            status="running",
            ready_at=None,
            worker=worker,
            pid=pid,
            claimed_at=Now(),
            deadline_at=Now(),
            epoch=1,
            attempt=1,
        )


def test_a_run_that_cannot_be_read_is_rescued_like_others(done: list[Any]) -> None:
    gone = a_worker(version=wakeful_version())
    bad, good = bad_and_good()
    run_by(gone, bad, *good)
    execute(
        "UPDATE runs_run SET policy = %s::jsonb, input = %s::jsonb WHERE id = %s::uuid", [TOO_DEEP, TOO_DEEP, bad.pk]
    )
    Worker.objects.filter(pk=gone.pk).update(stopped_at=Now())

    assert Rescuer().rescue() == 4
    assert statuses([bad, *good]) == {"queued"}


def test_a_run_that_the_database_refuses_to_hand_on_stops_the_rescue_of_no_other(done: list[Any]) -> None:
    gone = a_worker(version=wakeful_version())
    bad, good = bad_and_good()
    run_by(gone, bad, *good)
    Run.objects.filter(pk=bad.pk).update(epoch=NEVER_CLAIMED)  # it has no next one
    Worker.objects.filter(pk=gone.pk).update(stopped_at=Now())

    with pytest.raises(DataError):  # which becomes a trouble of its dispatcher
        Rescuer().rescue()

    assert statuses([bad]) == {"running"}
    assert statuses(good) == {"queued"}


def test_a_parent_buries_a_child_whose_run_cannot_be_read(done: list[Any]) -> None:
    bad = make_run(event_id=make_event().id)
    Run.objects.update(
        status="running",
        ready_at=None,
        worker=parent.WORKER_ID,
        pid=7,
        claimed_at=Now(),
        deadline_at=Now(),
        epoch=1,
        attempt=1,
    )
    execute("UPDATE runs_run SET policy = %s::jsonb, input = %s::jsonb", [TOO_DEEP, TOO_DEEP])
    watch = Watch(None)
    watch.children[7] = os.dup(0)

    watch.bury(7)

    assert statuses([bad]) == {"queued"}


def test_a_body_that_ends_autocommit_harms_no_other_run(done: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def body(run: AgentRun) -> None:
        transaction.set_autocommit(False)

    monkeypatch.setitem(registry._agents, "wild", Agent(name="wild", body=body, durable=True))
    bad = make_run(event_id=make_event().id, trigger="wild", policy={"durable": True})
    good = [make_run(event_id=make_event().id) for _ in range(3)]

    tasks.doorbell("default")

    assert statuses(good) == {"succeeded"}
    assert statuses([bad]) <= {"succeeded", "failed", "queued"}
