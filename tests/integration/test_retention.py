"""Retention as it runs by itself: Beat fires it, a worker carries it out."""

from tests.old_rows import old_event
from tests.stack import Stack, eventually
from triggers.models import Event

DUE = """
UPDATE triggers_schedule SET next_fire_at = clock_timestamp(), stale = false
FROM django_celery_beat_periodictask task WHERE task.id = task_id AND task.name = 'wakeful.prune' AND NOT stale
RETURNING task_id
"""
RESULT = "SELECT status, result FROM django_celery_results_taskresult"


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


def test_pruning_that_was_switched_off_stays_off_when_beat_starts_again(stack: Stack) -> None:
    beat = stack.start("beat")
    off = "UPDATE django_celery_beat_periodictask SET enabled = false WHERE name = 'wakeful.prune' RETURNING id"
    eventually(lambda: stack.query(off))

    beat.stop()
    beat.restart()

    asked = "SELECT enabled FROM django_celery_beat_periodictask WHERE name = 'wakeful.prune'"
    assert stack.query(asked) == [{"enabled": False}]
