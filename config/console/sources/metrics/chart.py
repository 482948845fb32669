"""A series as an inline SVG: pure geometry. Nothing is loaded and no script runs, so it is drawn under any content security policy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, ClassVar

from config.console.parts.moments import instant
from config.console.parts.sections import Cell
from triggers.sources.metrics.detector import Observation, Reading

WIDTH, HEIGHT, TOP = 1000.0, 220.0, 22.0  # of the drawing; the runs stand above TOP
COLUMNS = 500  # a path has at most two points in each
GAP = 10  # usual distances between samples, after which the line is broken

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Span:
    """An episode in the chart."""

    start: float
    end: float
    title: str
    is_open: bool = False


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A run in the chart."""

    at: float
    title: str
    url: str
    level: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """`paths` are lines by the name of their style; the others are placed by x."""

    template: ClassVar[str] = "admin/console/series.html"
    title: str
    note: Cell
    paths: Sequence[tuple[str, str]]
    spans: Sequence[dict[str, Any]]
    marks: Sequence[dict[str, Any]]
    highest: str
    lowest: str
    start: Cell
    end: Cell
    empty: str = "No samples in this time."


def draw(
    title: str,
    readings: Sequence[tuple[Observation, Reading | None]],
    *,
    spans: Sequence[Span] = (),
    marks: Sequence[Mark] = (),
    note: Cell = "",
) -> Chart:
    """Readings are None where no detector is drawn, or where it has not learned enough."""
    samples = [(observation.at, observation.value) for observation, _ in readings if observation.value is not None]
    if not samples:
        return Chart(title=title, note=note, paths=(), spans=(), marks=(), highest="", lowest="", start="", end="")
    frame = _Frame.around(readings, samples)
    lines = [("value", _thinned(samples, frame))]
    for name in ("upper", "lower", "expected"):
        bound = [
            (observation.at, value)
            for observation, one in readings
            if one and (value := getattr(one, name)) is not None
        ]
        lines.append((name, _thinned([(at, frame.cut(value)) for at, value in bound], frame)))
    return Chart(
        title=title,
        note=note,
        paths=[(name, _path(points, frame)) for name, points in reversed(lines) if points],
        spans=[_placed(span, frame) for span in spans if span.end >= frame.start],
        marks=[
            {"x": frame.x(one.at), "title": one.title, "url": one.url, "level": one.level}
            for one in marks
            if one.at >= frame.start
        ],
        highest=figure(frame.high),
        lowest=figure(frame.low),
        start=instant(_time(frame.start)),
        end=instant(_time(frame.end)),
    )


def figure(value: float | None) -> str:
    """A number to read: without decimals if it is large."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.5g}"


@dataclass(frozen=True, kw_only=True)
class _Frame:
    start: float
    end: float
    low: float
    high: float

    @classmethod
    def around(cls, readings: Sequence[tuple[Observation, Reading | None]], samples: Sequence[Point]) -> "_Frame":
        """All samples, and bounds that are not much further away than they reach."""
        values = [value for _, value in samples]
        low, high = min(values), max(values)
        reach = (high - low) or abs(high) or 1.0
        bounds = [
            bound for _, one in readings if one for bound in (one.lower, one.upper, one.expected) if bound is not None
        ]
        near = [bound for bound in bounds if low - reach <= bound <= high + reach]
        low, high = min([low, *near]), max([high, *near])
        if low == high:
            low, high = low - reach / 2, high + reach / 2
        start, end = readings[0][0].at, readings[-1][0].at
        return cls(start=start, end=end if end > start else start + 1, low=low, high=high)

    def x(self, at: float) -> float:
        return round(WIDTH * min(max((at - self.start) / (self.end - self.start), 0.0), 1.0), 1)

    def y(self, value: float) -> float:
        return round(TOP + (HEIGHT - TOP) * (1 - (value - self.low) / (self.high - self.low)), 1)

    def cut(self, value: float) -> float:
        return min(max(value, self.low), self.high)


def _thinned(points: Sequence[Point], frame: _Frame) -> list[Point]:
    """The lowest and the highest point of each column, in the order of time: no spike is left out."""
    if len(points) <= 2 * COLUMNS:
        return list(points)
    width = (frame.end - frame.start) / COLUMNS
    thinned: list[Point] = []
    for _, column in groupby(points, key=lambda point: int((point[0] - frame.start) / width)):
        of_column = list(column)
        lowest, highest = min(of_column, key=lambda point: point[1]), max(of_column, key=lambda point: point[1])
        thinned += sorted({lowest, highest})
    return thinned


def _path(points: Sequence[Point], frame: _Frame) -> str:
    return " ".join(_steps(points, frame))


def _steps(points: Sequence[Point], frame: _Frame) -> Iterator[str]:
    gaps = sorted(after[0] - before[0] for before, after in zip(points, points[1:], strict=False))
    longest = GAP * gaps[len(gaps) // 2] if gaps else 0.0
    before: float | None = None
    for at, value in points:
        is_new = before is None or at - before > longest
        yield f"{'M' if is_new else 'L'}{frame.x(at)} {frame.y(value)}"
        if is_new:
            yield "h0.01"  # so that a point on its own is seen
        before = at


def _placed(span: Span, frame: _Frame) -> dict[str, Any]:
    x = frame.x(span.start)
    width = max(frame.x(span.end) - x, 2.0)
    return {"x": min(x, WIDTH - 2.0), "width": width, "title": span.title, "is_open": span.is_open}


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
