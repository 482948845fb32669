"""Pause, resume or cancel a replay. IllegalState: its status does not allow it."""

from collections.abc import Collection

from django.db import transaction
from django.db.models.functions import Now

from agents.guards.atomic import not_in_atomic_body
from runs.db.nudge import nudge_dispatcher
from runs.exceptions import IllegalState
from runs.models.audit import record
from triggers.dispatch_lock import wait_for_dispatch
from triggers.models import Redispatch, Replay

Status = Replay.Status


@not_in_atomic_body
def pause_replay(replay: Replay, by: str) -> Replay:
    """Take no more events. Those that were taken are dispatched, and their runs go on."""
    with transaction.atomic():
        _change(replay, "pause", {Status.RUNNING}, by, status=Status.PAUSED)
    return Replay.objects.get(pk=replay.pk)


@not_in_atomic_body
def resume_replay(replay: Replay, by: str) -> Replay:
    """Go on at its rate; the time of the pause is not made up for."""
    with transaction.atomic():
        _change(replay, "resume", {Status.PAUSED}, by, status=Status.RUNNING, due_at=Now(), look_at=Now(), failures=0)
        nudge_dispatcher()
    return Replay.objects.get(pk=replay.pk)


@not_in_atomic_body
def cancel_replay(replay: Replay, by: str) -> Replay:
    """Take no more events, drop those that wait, and cancel runs that have not started. The others finish."""
    with transaction.atomic():
        # A batch under way may have read its redispatches: after that, none becomes a run any more.
        wait_for_dispatch()
        _change(replay, "cancel", {Status.RUNNING, Status.PAUSED}, by, status=Status.CANCELLING, look_at=Now())
        Redispatch.objects.filter(replay_id=replay.pk, dispatched_at=None).delete()
        nudge_dispatcher()
    return Replay.objects.get(pk=replay.pk)


def _change(replay: Replay, action: str, expected: Collection[str], by: str, **columns: object) -> None:
    if not Replay.objects.filter(pk=replay.pk, status__in=expected).update(**columns):
        status = Replay.objects.values_list("status", flat=True).get(pk=replay.pk)
        raise IllegalState(f"This replay is {status}, so it cannot {action}.", status=status)
    record(by, action, replay)
