"""The time axis of a waterfall: where an instant stands on it, in percent.

A run that sleeps three days between steps of milliseconds would show one long gap and hairline bars. If idle time is longer
than working time, the axis compresses it, so that work has half of the axis.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

Span = tuple[datetime, datetime]
BANDS = 60  # shaded stretches of idle time; if there are more, the longest


class Axis:
    def __init__(self, start: datetime, end: datetime, work: Iterable[Span] = ()) -> None:
        """`work`: the spans in which the run did something, in any order."""
        self.start, self.end = start, max(end, start + timedelta(milliseconds=1))
        worked = _merged([(max(a, self.start), min(b, self.end)) for a, b in work])
        self._idle = _between(worked, self.start, self.end)
        total, idle = self.end - self.start, sum((b - a for a, b in self._idle), timedelta())
        busy = total - idle
        # The width of an idle second as a fraction of a working second.
        self.idle_scale = min(1.0, busy / idle) if idle and busy else 1.0
        self._marks, self._places = self._measure()

    @property
    def shortened(self) -> str:
        """A note on the scale of idle time; empty if it equals the scale of work."""
        return f"1 : {1 / self.idle_scale:,.0f}" if self.idle_scale < 0.95 else ""

    @property
    def bands(self) -> list[tuple[float, float]]:
        """The longest idle stretches, from left to right."""
        longest = sorted(self._idle, key=lambda span: span[0] - span[1])[:BANDS]
        return [(self.at(start), self.at(end)) for start, end in sorted(longest)]

    def at(self, instant: datetime) -> float:
        """0 to 100."""
        instant = min(max(instant, self.start), self.end)
        index = bisect_right(self._marks, instant) - 1
        if index >= len(self._marks) - 1:
            return 100.0
        (a, b), (left, right) = self._marks[index : index + 2], self._places[index : index + 2]
        return round(100 * (left + (right - left) * ((instant - a) / (b - a))) / self._places[-1], 3)

    def _measure(self) -> tuple[list[datetime], list[float]]:
        """The instants at which idling begins or ends, and their distances from the start of the axis."""
        edges = {edge for span in self._idle for edge in span}
        marks = sorted({self.start, self.end, *edges})
        idle_from = {start for start, _ in self._idle}
        places = [0.0]
        for a, b in zip(marks, marks[1:], strict=False):
            scale = self.idle_scale if a in idle_from else 1.0
            places.append(places[-1] + (b - a).total_seconds() * scale)
        return marks, places


def _merged(spans: Sequence[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(span for span in spans if span[0] <= span[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _between(worked: Sequence[Span], start: datetime, end: datetime) -> list[Span]:
    edges = [start, *(edge for span in worked for edge in span), end]
    gaps = zip(edges[::2], edges[1::2], strict=True)
    return [(a, b) for a, b in gaps if a < b]
