"""What is due becomes events. Any number of Beats may do this at once: due rows are claimed, and a tick is recorded,
its schedule advanced and its task counted in one transaction, so every nominal time is accounted for exactly once.

1. An edit marks a schedule stale and keeps what had held until then (Revision), in the editor's transaction. A stale
   schedule is settled before it may fire: what its past states still owed is accounted for, then it is armed anew.
   An edit that changes nothing (the same rule written again, another name) moves nothing.
2. A schedule row and its task row are locked together or not at all: an editor locks the task first and then, through
   the table's trigger, the schedule. What is locked is skipped, never waited for, so there is no deadlock.
3. The rules are read after the locks, in a new statement: an edit that came just before the claim is seen.
4. A nominal time is *on time* until its due time is GRACE old, or, once a later one is due as well, LAG old: that much
   lateness is Beat's own (a busy machine, a restart), and no policy drops such a tick. What is older was *missed*:
   `all` fires each of them, `latest` the newest unless one on time fires anyway, `skip` none.
5. What does not fire is a Skip with its reason, written when `accounted_until` passes it.
6. Where django-celery-beat's own scheduler has run meanwhile (`last_run_at` is later than our last fire), what it fired
   is not owed.
7. Only the database's clock decides what is due. The instant is an argument so that tests can choose it.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice, takewhile
from typing import Any
from uuid import UUID

import structlog
from django.core.exceptions import ValidationError
from django.db import DataError, IntegrityError, transaction
from django_celery_beat.models import PeriodicTask

from runs.db.nudge import nudge_dispatcher
from runs.db.sql import database_now, execute, execute_many, fetch
from runs.failpoints import failpoint
from runs.models import OutboxMessage
from triggers.accept import Incoming, accept_ticks, builtin_source
from triggers.models import Schedule, Skip
from triggers.schedules.definition import ROWS, STATE, State
from triggers.schedules.periodic_tasks import message_of
from triggers.schedules.plan import EVER, Plan, Stretch
from triggers.schedules.rules.rule import Clocked, Interval, RuleError, just_before

log = structlog.get_logger(__name__)

BATCH = 200  # schedules of one transaction
TICKS = 500  # of one transaction, shared among its schedules: a long outage is worked off batch by batch
WORK = 1.0  # seconds in which one transaction works out what it writes: PostgreSQL ends those that stay idle for long
SLOW = 3.0  # seconds of one schedule, of the 5 for which PostgreSQL lets a transaction of Beat be idle
STEPS = 2000  # stretches of time that are accounted for of one schedule in one transaction; the rest stays owed
GRACE = timedelta(seconds=30)
LAG = timedelta(seconds=2)
EVENT_TYPE = "schedule.fired"
REFUSED = (DataError, IntegrityError, ValidationError, RecursionError)  # the last by JSON nested too deeply
Reason, Rest, CatchUp = Skip.Reason, Schedule.Rest, Schedule.CatchUp
TOO_LONG = (
    "Working out what it owes takes too long. Simplify its active hours and"
    " exclusions, or give it a shorter catch_up_window, and save it: it fires again from then on."
)
MISSED = (Reason.MISSED, Reason.WINDOW, Reason.MOST)

LOOK = """
SELECT clock_timestamp(),
       EXISTS (SELECT FROM triggers_schedule WHERE stale),
       EXISTS (SELECT FROM triggers_schedule WHERE due_at IS NULL AND NOT stale AND rest = ''),
       EXISTS (SELECT FROM triggers_backfill WHERE ended_at IS NULL),
       (SELECT min(due_at) FROM triggers_schedule WHERE due_at IS NOT NULL AND NOT stale)
"""
CLAIM = """
SELECT schedule.id FROM triggers_schedule schedule JOIN django_celery_beat_periodictask task ON task.id = schedule.task_id
WHERE {which} ORDER BY {order} LIMIT %s::int FOR UPDATE SKIP LOCKED
"""
STALE = "schedule.stale"
DUE = "schedule.due_at <= %s::timestamptz AND NOT schedule.stale"
THIS = " AND schedule.id = %s::bigint"
LOAD = f"""
SELECT schedule.id, schedule.task_id, periodic.name, schedule.trigger_id, schedule.data, {STATE}, schedule.next_fire_at,
       schedule.accounted_until, schedule.last_fire_at, schedule.fired_at, schedule.fires, schedule.spec, schedule.anchor_at,
       schedule.created_at, schedule.edited_at, schedule.rest, periodic.last_run_at
FROM {ROWS} WHERE schedule.id = ANY(%s::bigint[]) ORDER BY schedule.id
"""  # noqa: S608  (our own parts)
PAST = """
SELECT revision.schedule_id, revision.state, revision.until FROM triggers_revision revision
JOIN triggers_schedule schedule ON schedule.id = revision.schedule_id
WHERE revision.schedule_id = ANY(%s::bigint[]) AND revision.until > coalesce(schedule.accounted_until, schedule.created_at)
ORDER BY revision.until, revision.id
"""
ADVANCE = """
UPDATE triggers_schedule schedule SET next_fire_at = owed.next, due_at = owed.due,
       -- What retires it is an edit of its task: nothing before that is owed either.
       accounted_until = CASE WHEN owed.retires THEN greatest(owed.accounted, clock_timestamp()) ELSE owed.accounted END,
       last_fire_at = coalesce(owed.last, schedule.last_fire_at), fires = schedule.fires + owed.count,
       fired_at = CASE WHEN owed.count > 0 THEN owed.now ELSE schedule.fired_at END,
       spec = owed.spec, anchor_at = owed.anchor, rest = owed.rest, problem = owed.problem, stale = owed.unsettled
FROM unnest(%s::bigint[], %s::timestamptz[], %s::timestamptz[], %s::timestamptz[], %s::timestamptz[], %s::int[],
            %s::timestamptz[], %s::text[], %s::timestamptz[], %s::text[], %s::text[], %s::boolean[], %s::boolean[])
     AS owed (id, next, due, accounted, last, count, now, spec, anchor, rest, problem, retires, unsettled)
WHERE schedule.id = owed.id
"""
# Only these columns: PeriodicTask.save() has side effects, and none of this is an edit. What has fired for the last time
# is switched off, so that no other scheduler fires it again.
COUNT = """
UPDATE django_celery_beat_periodictask task
SET last_run_at = CASE WHEN owed.count > 0 THEN %s::timestamptz ELSE task.last_run_at END,
    total_run_count = task.total_run_count + owed.count, enabled = task.enabled AND NOT owed.retires
FROM unnest(%s::int[], %s::int[], %s::boolean[]) AS owed (id, count, retires)
WHERE task.id = owed.id AND (owed.count > 0 OR owed.retires)
"""
SKIP = """
INSERT INTO triggers_skip (schedule_id, reason, first, last, count, detail)
VALUES (%s::bigint, %s::text, %s::timestamptz, %s::timestamptz, %s::int, %s::text) ON CONFLICT DO NOTHING
"""
REFUSE = """
UPDATE triggers_schedule SET stale = false, spec = '', next_fire_at = NULL, due_at = NULL, rest = 'problem', problem = %s::text
WHERE id = %s::bigint
"""


class TookTooLong(Exception):
    """Working out one schedule took so long that PostgreSQL ends the idle transaction. Nothing was written."""

    def __init__(self, id: int) -> None:
        super().__init__(f"working out schedule {id} took more than {SLOW:g} s")
        self.id = id


@dataclass(frozen=True, kw_only=True)
class Look:
    """What there is to do, by the database's clock."""

    now: datetime
    has_stale: bool
    has_unarmed: bool
    has_backfills: bool
    next_due: datetime | None

    @property
    def is_due(self) -> bool:
        return self.next_due is not None and self.next_due <= self.now


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """A schedule with its task, locked and read."""

    id: int
    task_id: int
    name: str
    trigger_id: UUID | None
    data: Any
    state: State
    next_fire_at: datetime | None
    accounted_until: datetime | None
    last_fire_at: datetime | None
    fired_at: datetime | None
    fires: int
    spec: str
    anchor_at: datetime | None
    created_at: datetime
    edited_at: datetime
    rest: str
    last_run_at: datetime | None
    past: Sequence[
        tuple[State, datetime]
    ] = ()  # what held before its edits that are not accounted for, each until when

    @property
    def ran_elsewhere(self) -> datetime | None:
        """When another scheduler fired it last, if it has since we did."""
        at = self.last_run_at
        return at if at and (self.fired_at is None or at > self.fired_at) else None


@dataclass(kw_only=True)
class Owed:
    """What a schedule owes, brought up to date while it is worked out."""

    claimed: Claimed
    accounted: datetime
    spec: str
    anchor: datetime | None
    fires: list[tuple[datetime, datetime]] = field(default_factory=list)  # nominal and due
    skips: list[Stretch] = field(default_factory=list)
    next: datetime | None = None
    due: datetime | None = None
    rest: str = ""
    problem: str = ""
    retires: bool = False
    is_done: bool = False  # a one-shot that has fired and was not given another rule since
    unsettled: bool = False  # its past owes more than one transaction should hold

    @property
    def count(self) -> int:
        return len(self.fires)

    @property
    def last(self) -> datetime | None:
        return self.fires[-1][0] if self.fires else None

    def arm(self, plan: Plan, after: datetime) -> None:
        self.next = next(plan.fires(after), None)
        self.due = plan.due(self.next) if self.next else None
        self.rest = "" if self.next else Rest.OVER

    def retire(self, rest: str) -> None:
        self.next, self.due, self.rest, self.retires = None, None, rest, True

    def refuse(self, error: Exception) -> None:
        """Let it rest until it is edited. Whatever is wrong with one schedule must not keep the others from firing."""
        reason = _reason(error)
        log.error("beat.schedule_refused", schedule=self.claimed.name, reason=reason)
        self.next, self.due, self.rest, self.problem = None, None, Rest.PROBLEM, reason


def look() -> Look:
    """One cheap statement; all an idle Beat asks."""
    [row] = fetch(LOOK)
    return Look(**dict(zip(Look.__dataclass_fields__, row, strict=True)))


def settle(now: datetime | None = None, limit: int = BATCH) -> int:
    """Account for what stale schedules owed before their edits, and arm them anew; how many were."""
    at = now or database_now()
    return _batch(STALE, [], "schedule.id", limit, partial(_settle, at))


def fire_due(now: datetime, limit: int = BATCH) -> int:
    """Fire what is due at `now`, one batch; how many schedules were."""
    fired = _batch(DUE, [now], "schedule.due_at, schedule.id", limit, partial(_fire, now))
    if fired:
        failpoint("after_tick_commit")
    return fired


def try_alone(id: int) -> None:
    """What is to be done for one schedule, in transactions of its own. Raises TookTooLong."""
    now = database_now()
    _batch(STALE + THIS, [id], "schedule.id", 1, partial(_settle, now))
    _batch(DUE + THIS, [now, id], "schedule.id", 1, partial(_fire, now))


def give_up(id: int) -> None:
    """Let a schedule rest that takes too long to work out, until it is edited. What it owes stays owed."""
    log.error("beat.schedule_took_too_long", id=id)
    execute(REFUSE, [TOO_LONG, id])


def _batch(
    which: str, parameters: list[int | datetime], order: str, limit: int, act: Callable[[Sequence[Claimed]], None]
) -> int:
    """Claim and act in one transaction; how many were claimed. A batch that is refused is done schedule by schedule."""
    ids: list[int] = []
    try:
        with transaction.atomic():
            ids = _claim(which, parameters, order, limit)
            act(_load(ids))
    except REFUSED:
        log.exception("beat.batch_refused")
        for id in ids:
            _alone(id, which, parameters, act)
    return len(ids)


def _alone(id: int, which: str, parameters: list[int | datetime], act: Callable[[Sequence[Claimed]], None]) -> None:
    try:
        with transaction.atomic():
            act(_load(_claim(which + THIS, [*parameters, id], "schedule.id", 1)))
    except REFUSED as error:
        log.exception("beat.schedule_refused", id=id)
        execute(REFUSE, [f"{type(error).__name__}: {error}", id])


def _claim(which: str, parameters: list[int | datetime], order: str, limit: int) -> list[int]:
    return [id for (id,) in fetch(CLAIM.format(which=which, order=order), [*parameters, limit])]


def _load(ids: Sequence[int]) -> list[Claimed]:
    if not ids:
        return []
    names = [name for name in Claimed.__dataclass_fields__ if name != "past"]
    return [_claimed(dict(zip(names, row, strict=True))) for row in fetch(LOAD, [list(ids)])]


def _claimed(row: dict[str, Any]) -> Claimed:
    data = None if row["data"] is None else json.loads(row["data"])
    return Claimed(**{**row, "data": data, "state": State(row["id"], json.loads(row["state"]))})


# Settling: past states first, each up to the edit that ended it


def _settle(now: datetime, schedules: Sequence[Claimed]) -> None:
    if schedules:
        past: dict[int, list[tuple[State, datetime]]] = {}
        for id, state, until in fetch(PAST, [[schedule.id for schedule in schedules]]):
            past.setdefault(id, []).append((State(id, json.loads(state)), until))
        with_past = [replace(one, past=past.get(one.id, ())) for one in schedules]
        _record(_as_many(with_past, lambda one, budget: _settled(one, now, budget)), now)
    failpoint("before_settle_commit")


class Budget:
    """The work that may still be done for one schedule in this transaction. At least one step is always done, so a
    schedule gets on however slow the machine is."""

    def __init__(self, until: float) -> None:
        self.steps = STEPS
        self.until = until  # by the process's clock

    def go_on(self) -> bool:
        """Count a step; is there room for another?"""
        self.steps -= 1
        return not self.is_spent

    @property
    def is_spent(self) -> bool:
        return self.steps <= 0 or time.monotonic() > self.until


def _as_many(schedules: Sequence[Claimed], work: Callable[[Claimed, Budget], Owed]) -> list[Owed]:
    """As many of them as there is time for; the others are left to the next batch."""
    until = time.monotonic() + WORK
    owed: list[Owed] = []
    for schedule in schedules:
        began = time.monotonic()
        owed.append(work(schedule, Budget(until)))
        # Measured here: a session that PostgreSQL has ended does not always say why.
        if time.monotonic() - began > SLOW:
            raise TookTooLong(schedule.id)
        if time.monotonic() > until:
            break
    return owed


def _settled(schedule: Claimed, now: datetime, budget: Budget) -> Owed:
    begun = schedule.accounted_until or (schedule.created_at if schedule.past else schedule.edited_at)
    owed = Owed(claimed=schedule, accounted=begun, spec=schedule.spec, anchor=schedule.anchor_at)
    was_off = False
    for state, until in schedule.past:
        if until > owed.accounted:
            _account_for_past(owed, state, until, now, was_off, budget)
        was_off = not state.enabled
        # Not where the next state has to know more than what is written down.
        owed.unsettled |= not (was_off or owed.is_done) and budget.is_spent
        if owed.unsettled:
            return owed
    if not schedule.state.enabled:
        return _switched_off(owed)
    try:
        _arm(owed, was_off)
    except Exception as error:
        owed.spec = ""
        owed.refuse(error)
    return owed


def _account_for_past(owed: Owed, state: State, until: datetime, now: datetime, was_off: bool, budget: Budget) -> None:
    before = owed.count
    try:
        owed.is_done &= not _follow(owed, state, owed.accounted, was_off)
        plan = _leave_to_the_other(owed, state.plan(owed.anchor))
        if not state.enabled:
            owed.skips += plan.together(owed.accounted, until, Reason.PAUSED)
        elif owed.is_done or _used_up(owed):
            pass
        elif (first := next(plan.fires(owed.accounted), None)) and first <= until:
            newest = first if plan.once else plan.newest(first, until)
            _decide(owed, state, plan, first, newest, now, TICKS, budget)
            owed.unsettled = owed.accounted < newest and not _used_up(owed)
        owed.is_done |= plan.once and owed.count > before
        if state.enabled and not (owed.is_done or owed.unsettled or _used_up(owed)):
            skips, owed.accounted = plan.account(owed.accounted, until, [], [(EVER, Reason.MISSED)], budget.go_on)
            owed.skips += skips
            owed.unsettled = owed.accounted < until
    except Exception as error:
        log.error("beat.past_refused", schedule=owed.claimed.name, reason=repr(error))
        if state.enabled:
            owed.skips.append(_refused(owed.accounted, until, error))
    if not owed.unsettled:
        owed.accounted = max(owed.accounted, until)


def _follow(owed: Owed, state: State, since: datetime, was_off: bool) -> bool:
    """Anchor the rule of a state that begins; was it another one before? An interval that was off begins afresh as well."""
    spec = state.spec
    is_new = spec != owed.spec
    if isinstance(state.rule(), Interval) and (is_new or was_off or owed.anchor is None):
        elsewhere = owed.claimed.ran_elsewhere
        goes_on = elsewhere and (state.start is None or state.start < elsewhere)
        owed.anchor = elsewhere if goes_on else state.start or since
    owed.spec = spec
    return is_new


def _arm(owed: Owed, was_off: bool) -> None:
    schedule, state = owed.claimed, owed.claimed.state
    is_new = _follow(owed, state, owed.accounted, was_off)
    owed.is_done &= not is_new
    plan = _leave_to_the_other(owed, state.plan(owed.anchor))
    begun = owed.accounted
    if isinstance(plan.rule, Clocked) and is_new:
        # However late its row came, it fires, once.
        begun = min(begun, just_before(plan.rule.at))
    if (owed.is_done and state.one_off) or _is_done_elsewhere(owed, plan):
        owed.retire(Rest.DONE)
    elif _used_up(owed):
        owed.retire(Rest.USED_UP)
    else:
        owed.arm(plan, begun)
        if owed.rest and state.one_off and schedule.last_fire_at:
            owed.rest = Rest.DONE


def _switched_off(owed: Owed) -> Owed:
    schedule = owed.claimed
    # One that was done stays so until it has another rule; what fired under an earlier one says nothing.
    if schedule.state.one_off and (owed.is_done or (schedule.rest == Rest.DONE and not _is_other(owed))):
        owed.rest = Rest.DONE
    else:
        owed.rest = Rest.USED_UP if _used_up(owed) else Rest.OFF
    return owed


def _is_other(owed: Owed) -> bool:
    try:
        return owed.claimed.state.spec != owed.spec
    except RuleError:
        return True


def _used_up(owed: Owed) -> bool:
    most = owed.claimed.state.max_fires
    return most is not None and owed.claimed.fires + owed.count >= most


def _leave_to_the_other(owed: Owed, plan: Plan) -> Plan:
    """Account for what another scheduler has fired; an interval goes on from its last fire."""
    at = owed.claimed.ran_elsewhere
    if at is None or at <= owed.accounted:
        return plan
    owed.skips += plan.together(owed.accounted, at, Reason.ELSEWHERE)
    owed.accounted = at
    if isinstance(plan.rule, Interval):
        owed.anchor = at
        plan = replace(plan, rule=replace(plan.rule, anchor=at))
    return plan


def _is_done_elsewhere(owed: Owed, plan: Plan) -> bool:
    """Is it a one-shot that another scheduler has fired, and has not switched off yet?"""
    at = owed.claimed.ran_elsewhere
    return plan.once and at is not None and not (isinstance(plan.rule, Clocked) and plan.rule.at > at)


# Firing


def _fire(now: datetime, schedules: Sequence[Claimed]) -> None:
    if schedules:
        share = max(1, TICKS // len(schedules))
        owed = _as_many(schedules, lambda schedule, budget: _owed(schedule, now, share, budget))
        _record(owed, now)
        _log_missed(owed)
        failpoint("before_tick_commit")


def _owed(schedule: Claimed, now: datetime, share: int, budget: Budget) -> Owed:
    begun = schedule.accounted_until or schedule.edited_at
    owed = Owed(claimed=schedule, accounted=begun, spec=schedule.spec, anchor=schedule.anchor_at)
    state, first = schedule.state, schedule.next_fire_at
    try:
        plan = state.plan(owed.anchor)
        if schedule.ran_elsewhere and first and first <= schedule.ran_elsewhere:
            plan = _leave_to_the_other(owed, plan)
            first = next(plan.fires(owed.accounted), None)
        is_done = _is_done_elsewhere(owed, plan)
        if first and plan.due(first) <= now and not is_done:
            newest = first if plan.once else _newest_due(plan, first, now)
            _decide(owed, state, plan, first, newest, now, share, budget)
        if is_done or (state.one_off and first and first <= owed.accounted):
            owed.retire(Rest.DONE)
        elif _used_up(owed):
            owed.retire(Rest.USED_UP)
        else:
            owed.arm(plan, owed.accounted)
    except Exception as error:
        owed.refuse(error)
    return owed


def _log_missed(owed: Sequence[Owed]) -> None:
    """One line, however many schedules an outage has hit; each says for itself what it missed."""
    hit = [one for one in owed if any(skip.reason in MISSED for skip in one.skips)]
    if hit:
        log.warning("beat.ticks_missed", schedules=len(hit), such_as=[one.claimed.name for one in hit[:5]])


def _newest_due(plan: Plan, first: datetime, now: datetime) -> datetime:
    newest = plan.newest(first, now)
    return plan.newest(first, just_before(newest)) if newest > first and plan.due(newest) > now else newest


def _decide(
    owed: Owed, state: State, plan: Plan, first: datetime, newest: datetime, now: datetime, share: int, budget: Budget
) -> None:
    """Fire what is owed from `first` to `newest` by the catch-up policy, at most `share` of what must all be caught up,
    and account for the rest, as far as the budget goes."""
    on_time = _on_time(plan, first, newest, now)
    window = state.catch_up_window
    floor = first if window is None else max(first, min([now - window, *on_time[:1]]))
    missed: list[tuple[datetime, str]] = [(floor, Reason.WINDOW)] if floor > first else []
    fires = on_time
    if state.catch_up == CatchUp.ALL:
        if state.catch_up_max is not None:
            kept = plan.nth_newest(first, newest, state.catch_up_max + len(on_time))
            if kept > floor:
                floor, missed = kept, [*missed, (kept, Reason.MOST)]
        fires = list(_within(budget, islice(_between(plan, floor, newest), share)))
    elif not on_time and state.catch_up == CatchUp.LATEST and newest >= floor:
        fires = [newest]
    left = None if state.max_fires is None else max(0, state.max_fires - owed.claimed.fires - owed.count)
    if fires[:left] != fires:
        fires = fires[:left]
        newest = fires[-1] if fires else newest  # nothing is owed after the last one
    until = fires[-1] if fires and state.catch_up == CatchUp.ALL else newest
    if fires != [newest] or first != newest or plan.is_limited:
        # Of an instant whose row came late, what there is to account for lies before that row.
        begun = min(owed.accounted, just_before(first)) if plan.once else owed.accounted
        skips, until = plan.account(begun, until, fires, [*missed, (EVER, Reason.MISSED)], budget.go_on)
        owed.skips += skips
        fires = [nominal for nominal in fires if nominal <= until]
    owed.fires += [(nominal, plan.due(nominal)) for nominal in fires]
    owed.accounted = max(owed.accounted, until)


def _between(plan: Plan, first: datetime, last: datetime) -> Iterable[datetime]:
    return takewhile(lambda fire: fire <= last, plan.fires(just_before(first)))


def _within(budget: Budget, fires: Iterable[datetime]) -> Iterator[datetime]:
    for fire in fires:
        yield fire
        if not budget.go_on():
            return


def _on_time(plan: Plan, first: datetime, newest: datetime, now: datetime) -> list[datetime]:
    # Each is due before the following one is named: of those that are named before LAG, only the newest can be on time.
    latest = now - LAG
    since = first if latest <= first else plan.newest(first, min(newest, latest))
    fires = [nominal for nominal in _between(plan, since, newest) if plan.due(nominal) >= latest]
    return fires or [newest] * (now - plan.due(newest) <= GRACE)


# Recording


def _refused(first: datetime, last: datetime, error: Exception, count: int | None = None) -> Stretch:
    return Stretch(reason=Reason.REFUSED, first=first, last=last, count=count, detail=_reason(error))


def _reason(error: Exception) -> str:
    return (str(error) if isinstance(error, RuleError) else repr(error))[:500]


def _record(owed: Sequence[Owed], now: datetime) -> None:
    accept_ticks([_event(one, nominal, due) for one in owed for nominal, due in one.fires if one.claimed.trigger_id])
    OutboxMessage.objects.bulk_create(_messages(owed))
    skips = [(one.claimed.id, skip) for one in owed for skip in one.skips]
    if skips:
        execute_many(
            SKIP, [(id, str(skip.reason), skip.first, skip.last, skip.count, skip.detail) for id, skip in skips]
        )
    counts = [(one.claimed.task_id, one.count, one.retires) for one in owed]
    execute(COUNT, [now, *(list(column) for column in zip(*counts, strict=True))])
    # After the count: one that retires would otherwise be left stale.
    columns = [
        (one.claimed.id, one.next, one.due, one.accounted, one.last, one.count, now, one.spec, one.anchor, str(one.rest),
         one.problem, one.retires, one.unsettled)
        for one in owed
    ]  # fmt: skip
    execute(ADVANCE, [list(column) for column in zip(*columns, strict=True)])
    if any(one.count for one in owed):
        nudge_dispatcher()


def _event(owed: Owed, nominal: datetime, due: datetime) -> Incoming:
    schedule = owed.claimed
    return event_of(schedule.task_id, schedule.name, schedule.trigger_id, schedule.data, nominal, due)


def event_of(task_id: int, name: str, trigger_id: UUID | None, own: Any, nominal: datetime, due: datetime) -> Incoming:
    """The event of one nominal time of a schedule; `own` is the data of the schedule itself."""
    nominal = nominal.astimezone(UTC)
    data = {"schedule": name, "nominal": nominal.isoformat(), "due": due.astimezone(UTC).isoformat()}
    return Incoming(
        source_id=builtin_source("schedule"),
        ce_source=name,
        ce_id=f"{task_id}:{nominal.isoformat()}",
        type=EVENT_TYPE,
        time=nominal,
        data=data if own is None else {**data, "data": own},
        target_id=trigger_id,
    )


def _messages(owed: Sequence[Owed]) -> list[OutboxMessage]:
    """The user's ordinary tasks; one whose columns make no message says so, and goes on once they do."""
    ordinary = [one for one in owed if one.fires and one.claimed.trigger_id is None]
    if not ordinary:
        return []
    tasks: Mapping[int, PeriodicTask] = PeriodicTask.objects.in_bulk([one.claimed.task_id for one in ordinary])
    messages: list[OutboxMessage] = []
    for one in ordinary:
        try:
            messages += [message_of(tasks[one.claimed.task_id], nominal) for nominal, _ in one.fires]
        except RuleError as error:
            log.error("beat.task_refused", schedule=one.claimed.name, reason=str(error))
            one.skips += [_refused(nominal, nominal, error, count=1) for nominal, _ in one.fires]
            one.fires, one.problem = [], str(error)
    return messages
