"""Retention as it runs by itself: Beat fires it, a worker carries it out."""

import signal

import pytest

from tests.support.old_rows import old_event, old_run
from tests.support.stack import Stack, eventually
from triggers.models import Event

DUE = """
UPDATE triggers_schedule SET next_fire_at = clock_timestamp(), due_at = clock_timestamp(),
       accounted_until = clock_timestamp() - interval '1 day'
FROM django_celery_beat_periodictask task WHERE task.id = task_id AND task.name = 'wakeful.prune' AND NOT stale
RETURNING task_id
"""
RESULT = "SELECT status, result FROM django_celery_results_taskresult"


@pytest.mark.chaos
def test_pruning_is_fired_by_beat_and_done_by_a_worker(stack: Stack) -> None:
    with stack.orm():
        event = old_event(31)
    for kind in ("worker", "dispatcher", "beat"):
        stack.start(kind)

    eventually(lambda: stack.query(DUE))

    [done] = eventually(lambda: stack.query(RESULT))
    assert done == {"status": "SUCCESS", "result": '{"events.payload": 1}'}
    with stack.orm():
        assert Event.objects.get(pk=event.pk).data is None


@pytest.mark.chaos
def test_pruning_that_is_killed_between_two_batches_loses_one_of_them_at_most(stack: Stack) -> None:
    with stack.orm():
        for days in range(100, 110):
            old_run(old_event(days), days=days)

    # The second walk to commit is that of runs: their payloads are gone by then, the runs are not.
    killed = stack.manage("prune", check=False, env={"WAKEFUL_FAILPOINTS": "before_prune_commit=kill@2"})

    assert killed.returncode == -signal.SIGKILL
    assert len(stack.query("SELECT id FROM runs_run WHERE payload_removed_at IS NOT NULL")) == 10
    assert len(stack.query("SELECT run_id FROM runs_attempt")) == 10

    stack.manage("prune")

    for table in ("runs_run", "runs_attempt", "triggers_event"):
        assert not stack.query(f"SELECT id FROM {table}")  # noqa: S608
    assert not stack.query("SELECT event_id FROM runs_processedevent")
