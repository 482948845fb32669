from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from runs.exceptions import IllegalState, UnknownQueue
from runs.models import AuditEntry, Queue, Worker
from runs.queues import doorbell
from runs.queues.pause import EVERY, pause, resume, set_max_running
from runs.queues.state import QueueState, all_queues
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db


def state_of(name: str) -> QueueState:
    return next(queue for queue in all_queues() if queue.name == name)


def make_worker(*, queues: list[str], agents: list[str], **fields: Any) -> Worker:
    return Worker.objects.create(
        kind="worker", host="here", pid=1, version="1", concurrency=2, queues=queues, agents=agents, **fields
    )


@pytest.mark.parametrize("name", ["default", EVERY])
def test_a_pause_is_kept_with_who_and_why_until_it_is_resumed(name: str) -> None:
    pause(name, reason="the printer burns", by="admin:ada")

    state = state_of(name)
    assert (state.is_paused, state.paused_reason, state.paused_by) == (True, "the printer burns", "admin:ada")

    resume(name, by="admin:bob")

    assert not state_of(name).is_paused
    assert [(entry.by, entry.action, entry.object_id) for entry in AuditEntry.objects.order_by("id")] == [
        ("admin:ada", "pause", name),
        ("admin:bob", "resume", name),
    ]


def test_a_second_pause_does_not_replace_the_reason_of_the_first() -> None:
    pause(EVERY, reason="first", by="ada")

    with pytest.raises(IllegalState, match="All queues are paused already"):
        pause(EVERY, reason="second", by="bob")

    assert Queue.objects.get().paused_reason == "first"
    assert AuditEntry.objects.count() == 1


def test_a_queue_that_is_not_paused_cannot_be_resumed() -> None:
    with pytest.raises(IllegalState, match="Queue default is not paused"):
        resume("default", by="ada")


@pytest.mark.parametrize("act", [lambda: pause("defualt", reason="", by="ada"), lambda: resume("defualt", by="ada")])
def test_a_misspelt_queue_is_refused(act: Any) -> None:
    with pytest.raises(UnknownQueue, match="defualt"):
        act()

    assert not Queue.objects.exists()


def test_a_limit_is_set_and_taken_away() -> None:
    set_max_running("default", 3, by="ada")
    assert state_of("default").max_running == 3

    set_max_running("default", None, by="ada")
    assert state_of("default").max_running is None


@pytest.mark.parametrize(("name", "limit"), [("default", 0), (EVERY, 5)])
def test_a_limit_that_makes_no_sense_is_refused(name: str, limit: int) -> None:
    with pytest.raises(ValueError, match="1 or more"):
        set_max_running(name, limit, by="ada")


def test_queues_are_those_that_a_setting_a_worker_or_a_run_names() -> None:
    make_worker(queues=["served"], agents=["greeter"])
    make_run(queue="waited-in")
    make_run(queue="waited-in", trigger="other")

    assert [queue.name for queue in all_queues()] == ["*", "default", "served", "waited-in"]
    assert (state_of("served").children, state_of("waited-in").ready) == (2, 2)


def test_a_queue_shows_runs_that_no_worker_has_code_for() -> None:
    make_worker(queues=["default"], agents=["greeter"])
    make_run(trigger="greeter")
    make_run(trigger="newcomer")

    state = state_of("default")

    assert (state.ready, state.homeless, state.homeless_agents) == (2, 1, ["newcomer"])


@pytest.mark.parametrize("gone", [{"stopped_at": "2026-01-01T00:00Z"}, {"seen_at": "2026-01-01T00:00Z"}])
def test_a_worker_that_is_gone_serves_nothing(gone: dict[str, str]) -> None:
    make_worker(queues=["served"], agents=["greeter"], **gone)

    assert [queue.name for queue in all_queues()] == ["*", "default"]


def test_looking_at_the_queues_reads_only_the_head_of_a_long_one() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runs_run (id, seq, queue, agent, version, trigger, event_ids, policy, priority, replay_id, root_id,"
            " depth, status, status_reason, ready_at, attempt, epoch, key_limit, error)"
            " SELECT gen_random_uuid(), n, 'default', 'greeter', '', 'greeter', '{}', '{}', 5, gen_random_uuid(),"
            " gen_random_uuid(), 0, 'queued', '', now() - n * interval '1 s', 0, 0, 1, '' FROM generate_series(1, 3000) n"
        )

    state = state_of("default")

    assert state.ready == 1_000
    assert 1_000 <= state.oldest_seconds < 1_010


def claimable() -> int:
    return sum(line.claimable for line in doorbell.read_wanted(None))


@pytest.mark.parametrize("name", ["default", EVERY])
def test_a_paused_queue_gets_no_rings(name: str) -> None:
    make_worker(queues=["default"], agents=["greeter"])
    make_run()
    assert claimable() == 1

    pause(name, reason="the printer burns", by="ada")
    assert claimable() == 0

    resume(name, by="ada")
    assert claimable() == 1


def test_no_more_rings_than_a_queue_may_start_runs() -> None:
    worker = make_worker(queues=["default"], agents=["greeter"])
    for _ in range(4):
        make_run()
    set_max_running("default", 2, by="ada")
    assert claimable() == 2

    for pid in (1, 2):
        now = timezone.now()
        make_run(status="running", worker=worker, pid=pid, claimed_at=now, deadline_at=now)

    assert claimable() == 0
