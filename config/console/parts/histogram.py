"""The histogram above a list of rows whose ids are ordered by time: bars by outcome, and each narrows the list to its span.

What it costs does not grow with the table: of each bar the newest MOST rows are read, whatever the list is filtered by.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.core.exceptions import EmptyResultSet, FullResultSet
from django.db import DEFAULT_DB_ALIAS
from django.db.models import QuerySet
from django.utils import timezone

from agents.kernel.durations import in_words
from agents.kernel.ids import first_id_at
from config.console.parts.bars import LOW, Bars, Counted, bars_of
from runs.db.sql import fetch

MOST = 1_000  # rows of a bar that are read
FEW = 10_000  # found rows that are counted wherever they are
MOST_BARS = 31
LABELS = 8
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
STEPS = [
    *(MINUTE * number for number in (1, 2, 5, 10, 15, 30)),
    *(HOUR * number for number in (1, 2, 3, 6, 12)),
    *(DAY * number for number in (1, 2, 7, 14, 28, 91, 364)),
]
LATELY = {"1h": "hour", "24h": "24 hours", "7d": "7 days", "30d": "30 days"}
EPOCH = datetime(1970, 1, 1)
FORMAT = "%Y-%m-%dT%H:%M"
# The rows of a bar are read in the order of their ids. Only what an index has in this order narrows them before they are counted off.
COUNT = """
SELECT bar.number - 1, {outcome}, count(*) FILTER (WHERE {where}), count(*)
FROM unnest(%s::uuid[], %s::uuid[]) WITH ORDINALITY bar (first, last, number)
CROSS JOIN LATERAL (
  SELECT * FROM {table} WHERE id >= bar.first AND id < bar.last{narrowed} ORDER BY id DESC LIMIT {most}) {table}
GROUP BY 1, 2
"""


@dataclass(frozen=True)
class Range:
    """A range of time; the end is not part of it."""

    start: datetime
    end: datetime

    @classmethod
    def of(cls, start: datetime | None, end: datetime | None, oldest: datetime | None) -> "Range":
        """The range of a list: what it is searched by, or the last 24 hours, and longer ones if its first page reaches further back."""
        last = end or _minute(timezone.now()) + MINUTE
        first = start or min(last - DAY, _minute(oldest) if oldest else last)
        return cls(first, max(last, first + MINUTE))

    def spans(self, zone: ZoneInfo) -> list["Range"]:
        """Of equal length by the clock of the zone, at most MOST_BARS; the first and the last may be shorter."""
        length = self.end - self.start
        step = next((one for one in STEPS if length / one <= MOST_BARS - 1), None)
        if step is None:  # decades: their edges need no name
            edges = [self.start + length / MOST_BARS * number for number in range(MOST_BARS)]
        else:
            edges = [self.start]
            while (edge := _next_edge(edges[-1], step, zone)) < self.end:
                edges.append(edge)
        return [Range(a, b) for a, b in zip(edges, [*edges[1:], self.end], strict=True)]

    def query(self, zone: ZoneInfo) -> dict[str, str]:
        """As parameters of the list."""
        return {"start": _text(self.start, zone), "end": _text(self.end, zone)}


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What a list counts. `outcome`: an expression in SQL; `narrowed`: a condition that an index has in the order of the ids, and what is
    `given` to it."""

    nouns: tuple[str, str]
    outcome: str
    by_outcome: Callable[[Mapping[str, int]], dict[str, int]]
    keys: Mapping[str, str]
    given: Sequence[Any] = ()
    narrowed: str = ""

    def of(self, ids: Sequence[UUID]) -> "Rows":
        """These rows alone, which need not be among the newest of a bar."""
        return replace(self, narrowed="id = ANY (%s::uuid[])", given=[list(ids)])


@dataclass(kw_only=True)
class Bin:
    span: Range
    outcomes: Counter[str] = field(default_factory=Counter)
    read: int = 0

    @property
    def is_cut(self) -> bool:
        return self.read >= MOST


@dataclass(frozen=True, kw_only=True)
class Histogram:
    title: str
    bars: Bars
    keys: Mapping[str, str]
    ranges: Sequence[tuple[str, str, bool]]  # label, query, whether it is shown
    highest: str
    note: str


def histogram(
    listed: QuerySet[Any],
    rows: Rows,
    over: Range,
    zone: ZoneInfo,
    query: Callable[[Mapping[str, str]], str],
    asked: str,
) -> Histogram:
    """Over the rows of a list. `query` makes the query of the list with other times; `asked`: the one that it has, as it was typed."""
    bins = count(listed, rows, over.spans(zone))
    counted = [_counted(one, number, len(bins), rows, zone, query) for number, one in enumerate(bins)]
    most = max(bins, key=lambda one: one.outcomes.total())
    ranges = [(f"Last {name}", query({"start": age, "end": ""}), age == asked) for age, name in LATELY.items()]
    cut = (
        f"Of a bar with more than {MOST:,}, the newest {MOST:,} are counted." if any(one.is_cut for one in bins) else ""
    )
    return Histogram(
        title=_title(over, rows, zone),
        bars=bars_of(counted, LOW),
        keys=rows.keys,
        ranges=[*ranges, ("Any time", query({"start": "", "end": ""}), not asked)],
        highest=_number(most, rows),
        note=cut,
    )


def few(found: QuerySet[Any]) -> list[UUID] | None:
    """The ids of what a search finds; None: there are more than FEW."""
    ids = list(found.order_by().values_list("pk", flat=True)[: FEW + 1])
    return ids if len(ids) <= FEW else None


def count(listed: QuerySet[Any], rows: Rows, spans: Sequence[Range]) -> list[Bin]:
    bins = [Bin(span=span) for span in spans]
    try:
        where, given = listed.query.get_compiler(DEFAULT_DB_ALIAS).compile(listed.query.where)
    except FullResultSet:
        where, given = "true", ()
    except EmptyResultSet:
        return bins
    statement = COUNT.format(
        outcome=rows.outcome,
        where=where,
        table=listed.model._meta.db_table,
        narrowed=f" AND {rows.narrowed}" if rows.narrowed else "",
        most=MOST,
    )
    edges = [[first_id_at(at) for at in ends] for ends in zip(*((one.start, one.end) for one in spans), strict=True)]
    for number, outcome, found, read in fetch(statement, [*given, *edges, *rows.given]):
        bins[number].outcomes[outcome] += found
        bins[number].read += read
    return bins


def _counted(
    one: Bin, number: int, bins: int, rows: Rows, zone: ZoneInfo, query: Callable[[Mapping[str, str]], str]
) -> Counted:
    outcomes = rows.by_outcome(one.outcomes)
    others = [f"{outcomes[name]:,} {label}" for name, label in rows.keys.items() if name in ("failed", "waiting")]
    is_labelled = number % -(-bins // LABELS) == 0
    return Counted(
        outcomes=outcomes,
        url=query(one.span.query(zone)),
        says=f"{_said(one.span, zone)}: {', '.join([_number(one, rows), *others])}",
        label=_label(one.span, zone) if is_labelled else "",
    )


def _number(one: Bin, rows: Rows) -> str:
    number = one.outcomes.total()
    among = f" of the newest {MOST:,}" if one.is_cut and number < MOST else ""
    return f"{'at least ' if one.is_cut else ''}{number:,}{among} {rows.nouns[number != 1]}"


def _title(over: Range, rows: Rows, zone: ZoneInfo) -> str:
    start, end = over.start.astimezone(zone), over.end.astimezone(zone)
    name = rows.nouns[1].capitalize()
    last = f"{end:%H:%M}" if start.date() == end.date() else f"{end:%Y-%m-%d %H:%M}"
    return f"{name} from {start:%Y-%m-%d %H:%M} to {last}, {in_words(over.end - over.start)}"


def _said(span: Range, zone: ZoneInfo) -> str:
    start, end = span.start.astimezone(zone), span.end.astimezone(zone)
    if (end - start) % DAY == timedelta():
        return f"{start:%A, %B} {start.day}" if end - start == DAY else f"from {start:%Y-%m-%d} to {end:%Y-%m-%d}"
    return f"{start:%A %H:%M}–{end:%H:%M}"


def _label(span: Range, zone: ZoneInfo) -> str:
    start = span.start.astimezone(zone)
    return f"{start:%m-%d}" if span.end - span.start >= DAY else f"{start:%H:%M}"


def _next_edge(at: datetime, step: timedelta, zone: ZoneInfo) -> datetime:
    """The first multiple of the step after an instant, by the clock of the zone."""
    offset = at.astimezone(zone).utcoffset() or timedelta()
    since = at.replace(tzinfo=None) + offset - EPOCH
    return at + step - since % step


def _minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def _text(at: datetime, zone: ZoneInfo) -> str:
    local = at.astimezone(zone)
    return local.isoformat(timespec="seconds" if local.second or local.microsecond else "minutes")
