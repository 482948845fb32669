"""Decide which of the nominal times that are owed fire, by the catch-up policy."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice, takewhile

import structlog

from triggers.schedules.accounting import account
from triggers.schedules.clock import EVER, just_before
from triggers.schedules.definition import Definition
from triggers.schedules.firing.owed_fires import Budget, CatchUp, Owed, Reason
from triggers.schedules.plan import Plan

log = structlog.get_logger(__name__)
TICKS = 500  # of one transaction, shared among its schedules: a long outage is worked off batch by batch
GRACE = timedelta(seconds=30)
LAG = timedelta(seconds=2)
MISSED = (Reason.MISSED, Reason.WINDOW, Reason.MOST)


def log_missed(owed: Sequence[Owed]) -> None:
    """Log one line, however many schedules an outage has hit; each schedule's page shows what it missed."""
    hit = [one for one in owed if any(skip.reason in MISSED for skip in one.skips)]
    if hit:
        log.warning("beat.ticks_missed", schedules=len(hit), such_as=[one.claimed.name for one in hit[:5]])


def newest_due(plan: Plan, first: datetime, now: datetime) -> datetime:
    newest = plan.newest(first, now)
    return plan.newest(first, just_before(newest)) if newest > first and plan.due(newest) > now else newest


def decide(
    owed: Owed,
    definition: Definition,
    plan: Plan,
    first: datetime,
    newest: datetime,
    now: datetime,
    share: int,
    budget: Budget,
) -> None:
    """Fire what is owed from `first` to `newest` by the catch-up policy, at most `share` of what must all be caught up,
    and account for the rest, as far as the budget goes."""
    on_time = _on_time(plan, first, newest, now)
    window = definition.catch_up_window
    floor = first if window is None else max(first, min([now - window, *on_time[:1]]))
    missed: list[tuple[datetime, str]] = [(floor, Reason.WINDOW)] if floor > first else []
    fires = on_time
    if definition.catch_up == CatchUp.ALL:
        if definition.catch_up_max is not None:
            kept = plan.nth_newest(first, newest, definition.catch_up_max + len(on_time))
            if kept > floor:
                floor, missed = kept, [*missed, (kept, Reason.MOST)]
        fires = list(_within(budget, islice(_between(plan, floor, newest), share)))
    elif not on_time and definition.catch_up == CatchUp.LATEST and newest >= floor:
        fires = [newest]
    left = None if definition.max_fires is None else max(0, definition.max_fires - owed.claimed.fires - owed.count)
    if fires[:left] != fires:
        fires = fires[:left]
        newest = fires[-1] if fires else newest  # nothing is owed after the last one
    until = fires[-1] if fires and definition.catch_up == CatchUp.ALL else newest
    if fires != [newest] or first != newest or plan.open_times.is_limited:
        # Of an instant whose row came late, what there is to account for lies before that row.
        begun = min(owed.accounted, just_before(first)) if plan.once else owed.accounted
        skips, until = account(plan, begun, until, fires, [*missed, (EVER, Reason.MISSED)], budget.go_on)
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
