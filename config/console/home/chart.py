"""24 hours of runs by outcome, as bars that the server draws; a bar opens its runs, and deploys are marked."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from config.console.home.day import Day, Hour
from config.console.home.deploys import Deploy
from config.console.parts.links import counted
from config.console.parts.sections import Cell
from runs.states import RunStatus

WIDTH, HEIGHT, STEP, GAP = 960, 110, 40, 6
LABELLED = 3  # hours between two labels
# From the ground up. The rest has not ended, or was cancelled.
OUTCOMES = {"failed": (RunStatus.FAILED,), "succeeded": (RunStatus.SUCCEEDED,)}


@dataclass(frozen=True, kw_only=True)
class Part:
    outcome: str
    y: float
    height: float


@dataclass(frozen=True, kw_only=True)
class Bar:
    """An hour. The whole column is the link, so that a finger hits a low bar, too."""

    left: int
    url: str
    says: str
    parts: Sequence[Part]
    label: str
    runs: int


@dataclass(frozen=True, kw_only=True)
class Mark:
    left: float
    version: str
    says: str
    is_late: bool


@dataclass(frozen=True, kw_only=True)
class Chart:
    bars: Sequence[Bar]
    marks: Sequence[Mark]
    highest: Cell
    width: int = WIDTH
    height: int = HEIGHT
    column: int = STEP - GAP


def chart_of(day: Day, deploys: Sequence[Deploy], zone: ZoneInfo) -> Chart:
    highest = max(hour.runs for hour in day.today)
    bars = [_bar(hour, number, highest, zone) for number, hour in enumerate(day.today)]
    inside = [one for one in deploys if day.span.start <= one.at < day.span.end]
    marks = [_mark(one, day.span.start, zone) for one in inside]
    top = max(day.today, key=lambda hour: hour.runs)
    return Chart(bars=bars, marks=marks, highest=counted(top.span.runs(), top.runs, day.counted([top])))


def _bar(hour: Hour, number: int, highest: int, zone: ZoneInfo) -> Bar:
    start, end = (at.astimezone(zone) for at in (hour.span.start, hour.span.end))
    failed = sum(hour.outcomes[status] for status in OUTCOMES["failed"])
    more = "more than " if hour.is_cut else ""
    says = f"{start:%H:%M}–{end:%H:%M}: {more}{hour.runs:,} run{'' if hour.runs == 1 else 's'}, {failed:,} failed"
    return Bar(
        left=number * STEP + GAP // 2,
        url=hour.span.runs(),
        says=says,
        parts=_parts(hour, highest),
        label=f"{start:%H:%M}" if number % LABELLED == 0 else "",
        runs=hour.runs,
    )


def _parts(hour: Hour, highest: int) -> list[Part]:
    counts = {name: sum(hour.outcomes[status] for status in statuses) for name, statuses in OUTCOMES.items()}
    counts["other"] = hour.runs - sum(counts.values())
    parts, y = [], float(HEIGHT)
    for outcome, count in counts.items():
        if count:
            height = max(round(HEIGHT * count / highest, 1), 2)
            y -= height
            parts.append(Part(outcome=outcome, y=round(max(y, 0), 1), height=height))
    return parts


def _mark(deploy: Deploy, start: datetime, zone: ZoneInfo) -> Mark:
    left = round((deploy.at - start).total_seconds() / 3600 * STEP, 1)
    says = f"version {deploy.version} from {deploy.at.astimezone(zone):%H:%M}"
    return Mark(left=left, version=deploy.short, says=says, is_late=left > WIDTH * 0.8)
