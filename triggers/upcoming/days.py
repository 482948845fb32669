"""Upcoming wakes by day, for a calendar in a given zone.

Reads the first schedules of each day and computes at most FIRES fires for all of them together. So with few schedules every
fire is counted; with many, a day only shows that they fire.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from runs.db.sql import database_now, fetch
from triggers.models import Schedule
from triggers.schedules.clock import instant_of
from triggers.schedules.reminders import text_of
from triggers.schedules.rows import RELATED
from triggers.upcoming.entry import BY_CLOCK, KINDS, SEEN, Span
from triggers.upcoming.listing import Clock, clocks, kind_of, not_by_clock, only_those

PER_DAY = 60  # schedules whose next fire is on that day
OTHERS = 1000  # entries of each other kind, for all days
FIRES = 20_000
MOST_COUNTED = 100  # fires of one schedule on one day

FIRST_OF_DAYS = """
SELECT day.number, soonest.id FROM unnest(%s::timestamptz[], %s::timestamptz[]) WITH ORDINALITY AS day(start, until, number)
CROSS JOIN LATERAL (
  SELECT id FROM triggers_schedule WHERE due_at >= day.start AND due_at < day.until AND NOT stale
  ORDER BY due_at LIMIT %s::int) soonest
"""


@dataclass(kw_only=True)
class Named:
    """An entry of a day, which comes `count` times; `is_more`: or more often."""

    kind: str
    name: str
    agent: str = ""
    first: datetime
    count: int = 1
    is_more: bool = False


@dataclass(kw_only=True)
class Day:
    """A day and its entries; `is_more`: there are others that were not read."""

    date: date
    start: datetime
    until: datetime
    named: list[Named] = field(default_factory=list)
    is_more: bool = False

    @property
    def count(self) -> int:
        return sum(one.count for one in self.named)

    @property
    def is_at_least(self) -> bool:
        return self.is_more or any(one.is_more for one in self.named)


def days_ahead(
    first: date, last: date, zone: ZoneInfo, *, kinds: Iterable[str] = KINDS, agent: str = ""
) -> dict[date, Day]:
    """The days from `first` to `last` with their entries, without past days. Late entries are listed under today."""
    now, wanted = database_now(), frozenset(kinds)
    first = max(first, now.astimezone(zone).date())
    days = [_day(first + timedelta(days=number), zone) for number in range((last - first).days + 1)]
    if not days:
        return {}
    if days[0].start <= now:
        days[0].start = datetime.min.replace(tzinfo=now.tzinfo)
    if wanted & set(BY_CLOCK):
        _add_schedules(days, now, wanted, agent)
    _add_others(days, now, zone, wanted, agent)
    for day in days:
        day.named.sort(key=lambda one: (one.first, one.name))
    return {day.date: day for day in days}


def _day(day: date, zone: ZoneInfo) -> Day:
    start, until = (instant_of(datetime.combine(one, time()), zone) for one in (day, day + timedelta(days=1)))
    return Day(date=day, start=start, until=until)


def _add_schedules(days: Sequence[Day], now: datetime, wanted: frozenset[str], agent: str) -> None:
    schedules = _first_of_each(days, wanted, agent)
    if not schedules:
        return
    most = max(1, min(MOST_COUNTED, FIRES // (len(schedules) * len(days))))
    for clock in clocks(schedules):
        for day in days:
            _add_fires(day, clock, now, most)


def _first_of_each(days: Sequence[Day], wanted: frozenset[str], agent: str) -> list[Schedule]:
    only = only_those(wanted, agent)
    most = SEEN // len(days) if only else PER_DAY
    found = fetch(FIRST_OF_DAYS, [[day.start for day in days], [day.until for day in days], most])
    for number, count in Counter(number for number, _ in found).items():
        days[number - 1].is_more = count == most
    chosen = Schedule.objects.filter(only, pk__in=[id for _, id in found]).select_related(*RELATED)
    return list(chosen.order_by("due_at")[: PER_DAY * len(days)])


def _add_fires(day: Day, clock: Clock, now: datetime, most: int) -> None:
    due = clock.schedule.due_at
    if due is None or due >= day.until:
        return
    fires = clock.within(Span(start=max(day.start, now), until=day.until, now=now), most + 1)
    if fires:
        schedule = clock.schedule
        day.named.append(
            Named(
                kind=kind_of(schedule),
                name=text_of(schedule) or schedule.task.name,
                first=fires[0][1],
                count=min(len(fires), most),
                is_more=len(fires) > most,
            )
        )


def _add_others(days: Sequence[Day], now: datetime, zone: ZoneInfo, wanted: frozenset[str], agent: str) -> None:
    by_date = {day.date: day for day in days}
    span = Span(start=max(days[0].start, now), until=days[-1].until, now=now)
    for coming in not_by_clock(span, OTHERS, wanted, agent):
        day = by_date[max(coming.at, span.start).astimezone(zone).date()]
        day.named.append(Named(kind=coming.kind, name=coming.name, agent=coming.agent, first=coming.at))
