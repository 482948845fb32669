"""Bars of a chart that the server draws: rows by outcome in spans of time, each bar a link."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT, GAP = 960, 110, 6
LOW = 56  # the height of bars that are not the subject of their page


@dataclass(frozen=True, kw_only=True)
class Part:
    outcome: str
    y: float
    height: float


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A span of time. The whole column is the link, so that a finger hits a low bar, too."""

    left: float
    url: str
    says: str
    parts: Sequence[Part]
    label: str
    rows: int


@dataclass(frozen=True, kw_only=True)
class Bars:
    bars: Sequence[Bar]
    column: float  # the width of a bar
    height: int
    width: int = WIDTH


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The rows of a span by outcome, from the ground up."""

    outcomes: Mapping[str, int]
    url: str
    says: str
    label: str

    @property
    def rows(self) -> int:
        return sum(self.outcomes.values())


def bars_of(counted: Iterable[Counted], height: int = HEIGHT) -> Bars:
    spans = list(counted)
    step, highest = WIDTH / len(spans), max(span.rows for span in spans)
    bars = [
        Bar(
            left=round(number * step + GAP / 2, 1),
            url=span.url,
            says=span.says,
            parts=_parts(span.outcomes, highest, height),
            label=span.label,
            rows=span.rows,
        )
        for number, span in enumerate(spans)
    ]
    return Bars(bars=bars, column=round(step - GAP, 1), height=height)


def _parts(outcomes: Mapping[str, int], highest: int, whole: int) -> list[Part]:
    parts, y = [], float(whole)
    for outcome, count in outcomes.items():
        if count:
            height = max(round(whole * count / highest, 1), 2)
            y -= height
            parts.append(Part(outcome=outcome, y=round(max(y, 0), 1), height=height))
    return parts
