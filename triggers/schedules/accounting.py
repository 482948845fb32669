"""Account for the nominal times of a plan that did not fire. Pure."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from triggers.schedules.plan import Plan
from triggers.schedules.rules.rule import count_fires

MOST_COUNTED = 2**31 - 1  # an integer of PostgreSQL


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Nominal times one after the other that did not fire, for one reason; `count` is None where they are too many."""

    reason: str
    first: datetime
    last: datetime
    count: int | None
    detail: str = ""


def account(
    plan: Plan,
    after: datetime,
    until: datetime,
    fired: Sequence[datetime],
    missed: Sequence[tuple[datetime, str]],
    go_on: Callable[[], bool] = lambda: True,
) -> tuple[list[Stretch], datetime]:
    """What the nominal times after an instant and up to another that did not fire have in common, and the instant up
    to which they are accounted for: `until`, or an earlier one where `go_on`, which is called after each step,
    returned false. `fired` ascends. `missed` gives the reasons for open times, each up to an instant, the last one
    without end.
    """
    stretches: list[Stretch] = []
    while (first := next(plan.raw(after), None)) is not None and first <= until:
        later = bisect_right(fired, first)
        after = first
        if closure := plan.closed(first):
            reason, detail, stop = closure.reason, closure.detail, closure.until
        elif later and fired[later - 1] == first:
            continue
        else:
            before, reason = next((before, reason) for before, reason in missed if first < before)
            detail, stop = "", min(before, plan.open_times.closes(first), *fired[later : later + 1])
        after = plan.last_before(first, min(stop, until + timedelta(microseconds=1)))
        _append(plan, stretches, Stretch(reason=reason, first=first, last=after, count=None, detail=detail))
        if not go_on():
            break
    else:
        after = max(after, until)
    return [_counted(plan, stretch) for stretch in stretches], after


def together(plan: Plan, after: datetime, until: datetime, reason: str, detail: str = "") -> list[Stretch]:
    """All nominal times after an instant and up to another as one stretch, open or closed."""
    first = next(plan.raw(after), None)
    if first is None or first > until:
        return []
    last = plan.last_before(first, until + timedelta(microseconds=1))
    return [_counted(plan, Stretch(reason=reason, first=first, last=last, count=None, detail=detail))]


def _append(plan: Plan, stretches: list[Stretch], stretch: Stretch) -> None:
    last = stretches[-1] if stretches else None
    is_one = last and (last.reason, last.detail) == (stretch.reason, stretch.detail)
    if last and is_one and next(plan.raw(last.last)) == stretch.first:
        stretches[-1] = replace(last, last=stretch.last)
    else:
        stretches.append(stretch)


def _counted(plan: Plan, stretch: Stretch) -> Stretch:
    count = count_fires(plan.rule, stretch.first, stretch.last)
    return replace(stretch, count=count if count <= MOST_COUNTED else None)
