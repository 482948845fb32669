"""24 hours of runs by outcome, as bars that the server draws; a bar opens its runs, and deploys are marked."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from config.console.home.day import Day, Hour
from config.console.home.deploys import Deploy
from config.console.parts.bars import WIDTH, Bars, Counted, bars_of
from config.console.parts.links import counted
from config.console.parts.sections import Cell
from config.console.runs.words import by_outcome

LABELLED = 3  # hours between two labels


@dataclass(frozen=True, kw_only=True)
class Mark:
    left: float
    version: str
    says: str
    is_late: bool


@dataclass(frozen=True, kw_only=True)
class Chart:
    bars: Bars
    marks: Sequence[Mark]
    highest: Cell


def chart_of(day: Day, deploys: Sequence[Deploy], zone: ZoneInfo) -> Chart:
    bars = bars_of(_counted(hour, number, zone) for number, hour in enumerate(day.today))
    inside = [one for one in deploys if day.span.start <= one.at < day.span.end]
    step = WIDTH / len(day.today)
    marks = [_mark(one, day.span.start, step, zone) for one in inside]
    top = max(day.today, key=lambda hour: hour.runs)
    return Chart(bars=bars, marks=marks, highest=counted(top.span.runs(), top.runs, day.counted([top])))


def _counted(hour: Hour, number: int, zone: ZoneInfo) -> Counted:
    start, end = (at.astimezone(zone) for at in (hour.span.start, hour.span.end))
    outcomes = by_outcome(hour.outcomes)
    more = "more than " if hour.is_cut else ""
    runs = f"{more}{hour.runs:,} run{'' if hour.runs == 1 else 's'}"
    return Counted(
        outcomes=outcomes,
        url=hour.span.runs(),
        says=f"{start:%H:%M}–{end:%H:%M}: {runs}, {outcomes['failed']:,} failed",
        label=f"{start:%H:%M}" if number % LABELLED == 0 else "",
    )


def _mark(deploy: Deploy, start: datetime, step: float, zone: ZoneInfo) -> Mark:
    left = round((deploy.at - start).total_seconds() / 3600 * step, 1)
    says = f"version {deploy.version} from {deploy.at.astimezone(zone):%H:%M}"
    return Mark(left=left, version=deploy.short, says=says, is_late=left > WIDTH * 0.8)
