"""Backfills: fire the nominal times of a past range, a few at a time, as events like those of any other tick.

1. A nominal time that has fired is not fired again: the identity of a tick's event sees to it, whether Beat or a backfill makes it. With
   `again`, the identity has the backfill's id in it.
2. Events are made as their runs end, so that never many wait. A batch is one transaction, under the lock of the
   backfill's row; what is locked is skipped, so any number of Beats may do this.
3. Its runs have a key and a priority of their own (see `triggers.matching.backfill_terms`).
4. A cancelled backfill makes no further run: that is decided under the dispatch lock. Runs that have begun finish.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from agents.guards.atomic import not_in_atomic_body
from runs.db.errors import is_gone
from runs.db.sql import fetch
from runs.exceptions import IllegalState
from runs.models.audit import record
from triggers.dispatch_lock import wait_for_dispatch
from triggers.exceptions import RuleError
from triggers.models import Backfill, BackfillTick
from triggers.schedules.backfill.outcomes import cancel_queued, drop_waiting, held, open_ticks, settle
from triggers.schedules.backfill.start import NOTIFY, remembered_since
from triggers.schedules.backfill.ticks import fire, nominal_times, plan_from

log = structlog.get_logger(__name__)

AHEAD = 50  # events that wait besides those whose runs may run
BATCH = 100  # nominal times of one transaction: meanwhile this Beat fires nothing else
LOOK_EVERY = timedelta(seconds=1)  # while one is under way
COUNTS = """
SELECT backfill_id, outcome, count(*) FROM triggers_backfilltick
WHERE backfill_id = ANY(%s::uuid[]) GROUP BY backfill_id, outcome
"""
Outcome, Status = BackfillTick.Outcome, Backfill.Status


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of a backfill: nominal times by outcome. `held` are the open ones that wait for their trigger to be
    resumed; `obstacle`: why no more are fired.
    """

    total: int
    taken: int
    open: int = 0
    there: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    refused: int = 0
    held: int = 0
    obstacle: str = ""

    @property
    def ended(self) -> int:
        return self.taken - self.open

    @property
    def share(self) -> float:
        """The finished share, from 0 to 1."""
        return self.ended / self.total if self.total else 1.0


@not_in_atomic_body
def cancel_backfill(backfill: Backfill, by: str) -> Backfill:
    """Fire no more of it, and cancel what has not begun. A run that is running or waits is left to finish; the backfill
    has ended when it has. IllegalState: it is done or cancelled already."""
    with transaction.atomic():
        if not Backfill.objects.filter(pk=backfill.pk, status=Status.RUNNING).update(status=Status.CANCELLED):
            status = Backfill.objects.values_list("status", flat=True).get(pk=backfill.pk)
            raise IllegalState(f"This backfill is {status} already.", status=status)
        # A batch under way may have read its events: after that, none becomes a run any more.
        wait_for_dispatch()
        dropped = drop_waiting(backfill, f"its backfill was cancelled by {by}")
        record(by, "cancel", backfill, events=dropped)
        fetch(NOTIFY)
    _advance(backfill.pk)  # Beat would, within LOOK_EVERY
    return Backfill.objects.get(pk=backfill.pk)


def progress(backfill: Backfill) -> Progress:
    """The progress of the backfill."""
    return progress_of([backfill])[backfill.pk]


def progress_of(backfills: Sequence[Backfill]) -> dict[UUID, Progress]:
    """The progress of each backfill, by id."""
    ids = [backfill.pk for backfill in backfills]
    waiting = held(ids)
    counts: dict[UUID, dict[str, int]] = {id: {} for id in ids}
    for id, outcome, count in fetch(COUNTS, [ids]):
        counts[id][outcome] = count
    return {
        backfill.pk: Progress(
            total=backfill.total,
            taken=sum(counts[backfill.pk].values()),
            held=waiting.get(backfill.pk, 0),
            obstacle=_obstacle(backfill) if backfill.ended_at is None else "",
            **counts[backfill.pk],
        )
        for backfill in backfills
    }


def advance() -> bool:
    """Advance every running backfill by one batch; is there more to do at once?"""
    more = False
    for id in Backfill.objects.filter(ended_at=None).order_by("pk").values_list("pk", flat=True):
        more |= _advance(id)
    return more


def _advance(id: UUID) -> bool:
    """Fire one batch of one backfill, in one transaction; return whether more can be done at once."""
    locked = Backfill.objects.select_for_update(skip_locked=True, of=("self",))
    try:
        with transaction.atomic():
            backfill = locked.select_related("schedule__task", "schedule__trigger").filter(pk=id, ended_at=None).first()
            return backfill is not None and _advance_locked(backfill)
    except Exception as error:
        if is_gone(error):
            raise
        # One that cannot go on must not keep the others from it, nor schedules from firing.
        log.exception("backfill.refused", backfill=str(id))
        return False


def _advance_locked(backfill: Backfill) -> bool:
    ticks = open_ticks(backfill)
    if backfill.status == Status.CANCELLED:
        cancel_queued(backfill, ticks)
    settle(ticks)
    has_more = not _obstacle(backfill) and _feed(backfill)
    if not has_more:
        _end_if_over(backfill)
    return has_more


def _obstacle(backfill: Backfill) -> str:
    schedule = backfill.schedule
    trigger = schedule.trigger
    if backfill.status == Status.CANCELLED:
        return "it was cancelled; what had begun goes on to its end"
    if trigger is None:
        return "its schedule has no trigger any more"
    if not trigger.enabled or trigger.is_paused:
        return f"trigger {trigger} is {trigger.status}"
    if schedule.stale:
        return "its schedule has just been edited"
    if not backfill.again and backfill.position < min(remembered_since(schedule), backfill.end):
        return (
            "what fired at its next times is no longer known (WAKEFUL_KEEP_EVENTS): cancel it, and start another from a"
            " later time, or one that fires again"
        )
    try:
        plan_from(schedule, backfill.start)
    except RuleError as error:
        return f"its schedule cannot be carried out: {error}"
    return ""


def _feed(backfill: Backfill) -> bool:
    """Fire the next nominal times, as many as there is room for in one batch; is there room for more at once?"""
    room = backfill.at_once + AHEAD - _open(backfill).count()
    size = min(room, BATCH)
    if size <= 0:
        return False
    plan = plan_from(backfill.schedule, backfill.start)
    nominals = list(islice(nominal_times(plan, backfill.position, backfill.end), size))
    fired = fire(backfill, plan, nominals)
    may_be_more = len(nominals) == size
    backfill.position = nominals[-1] + timedelta(microseconds=1) if may_be_more else backfill.end
    backfill.save(update_fields=["position"])
    return may_be_more and fired < room


def _end_if_over(backfill: Backfill) -> None:
    underway = Backfill.objects.filter(pk=backfill.pk)
    if _open(backfill).exists():
        return
    if backfill.status == Status.CANCELLED:
        underway.update(ended_at=Now())
    elif backfill.position >= backfill.end:
        # An edit of the schedule meanwhile may have made its nominal times more or fewer.
        total = BackfillTick.objects.filter(backfill=backfill).count()
        underway.update(status=Status.DONE, ended_at=Now(), total=total)


def _open(backfill: Backfill) -> QuerySet[BackfillTick]:
    return BackfillTick.objects.filter(backfill=backfill, outcome=Outcome.OPEN)
