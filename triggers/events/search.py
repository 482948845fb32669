"""Search recorded events by source, type, subject, time and fields of their data.

Fields are searched by the index `event_by_field`, which holds the data of dispatched events up to SEARCHABLE bytes as PostgreSQL
stores them (compressed). Larger data is neither indexed nor searched by field: to read it would take as long as it is large.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, QuerySet
from django.db.models.expressions import RawSQL

from runs.api.strict_json import Unreadable, is_storable, parse_json, require_storable
from runs.db.sql import fetch_column
from triggers.events.order import seq_after, seq_before
from triggers.exceptions import RuleError
from triggers.models import Event, Source

SEARCHABLE = 16_384  # bytes of stored data; stands in the function `triggers_searchable` of the migrations as well
MOST_FIELDS = 10
MOST_TYPES = 2_000  # types that a pattern is compared with
LONGEST = 1_000  # characters of a path or value
GLOB = frozenset("*?[")
YEARS = range(1900, 9999)  # within them, arithmetic does not leave the calendar
# Each name, and after it `[]` for any element of a list.
STEP = re.compile(r'(?P<name>"(?:[^"\\]|\\.)*"|[^.\[\]"]+)?(?P<lists>(?:\[\])*)')
# A loose index scan: one step per type, not per event.
TYPES = """
WITH RECURSIVE known AS (
  (SELECT type FROM triggers_event WHERE dispatched_at IS NOT NULL ORDER BY type LIMIT 1)
  UNION ALL
  SELECT (SELECT type FROM triggers_event WHERE dispatched_at IS NOT NULL AND type > known.type ORDER BY type LIMIT 1)
  FROM known WHERE known.type IS NOT NULL
)
SELECT type FROM (SELECT type FROM known WHERE type IS NOT NULL LIMIT %(most)s::int) dispatched
UNION
SELECT type FROM (SELECT type FROM triggers_event WHERE dispatched_at IS NULL LIMIT %(most)s::int) waiting
"""
HAS_FIELD = "triggers_searchable(triggers_event.data) @> %s::jsonb"


@dataclass(frozen=True, kw_only=True)
class FieldIs:
    """A condition on the data: the value at a path, such as `customer.id`, `items[].sku` or `"a.b".c`."""

    path: str
    value: str

    @classmethod
    def parse(cls, text: str) -> "FieldIs":
        """`path=value`. Raises RuleError."""
        path, separator, value = text.partition("=")
        if not separator:
            raise RuleError(f"{text[:100]!r} is not a field; use path=value, e.g. customer.id=42", field="field")
        condition = cls(path=path.strip(), value=value.strip())
        condition.shapes()  # validates
        return condition

    def __str__(self) -> str:
        return f"{self.path}={self.value}"

    def shapes(self) -> list[Any]:
        """The JSON that data with this field contains, one for each meaning of the value: 42 is a number or a text."""
        if max(len(self.path), len(self.value)) > LONGEST:
            raise RuleError(f"a path or value is longer than {LONGEST:,} characters", field="field")
        if not is_storable(self.path + self.value):
            raise RuleError("a path or value contains U+0000 or an unpaired surrogate", field="field")
        steps = _steps(self.path)
        return [_around(steps, meaning) for meaning in _meanings(self.value)]


@dataclass(frozen=True, kw_only=True)
class Search:
    """Conditions on events; all of them apply. `type` may be a pattern such as `order.*`; `start` is inclusive, `end` is not."""

    source: str = ""
    type: str = ""
    subject: str = ""
    start: datetime | None = None
    end: datetime | None = None
    fields: tuple[FieldIs, ...] = ()

    def __post_init__(self) -> None:
        if len(self.fields) > MOST_FIELDS:
            raise RuleError(f"{len(self.fields)} fields; search by at most {MOST_FIELDS}", field="field")
        for name, at in (("start", self.start), ("end", self.end)):
            if at and at.year not in YEARS:
                raise RuleError(f"{at:%Y-%m-%d} is not between the years {YEARS[0]} and {YEARS[-1]}", field=name)
        if self.start and self.end and self.start >= self.end:
            raise RuleError("the range ends before it begins", field="end")

    @classmethod
    def load(cls, stored: Mapping[str, Any], start: datetime | None = None, end: datetime | None = None) -> "Search":
        """The search of a `dump`, with a range."""
        fields = tuple(FieldIs.parse(text) for text in stored.get("fields", ()))
        words = {name: str(stored.get(name, "")) for name in ("source", "type", "subject")}
        return cls(**words, fields=fields, start=start, end=end)

    def dump(self) -> dict[str, Any]:
        """The search as JSON, without its range."""
        words = {"source": self.source, "type": self.type, "subject": self.subject}
        found: dict[str, Any] = {name: value for name, value in words.items() if value}
        return {**found, "fields": [str(one) for one in self.fields]} if self.fields else found

    @property
    def finds_all(self) -> bool:
        """Nothing of it leaves out an event but, at most, those after its end."""
        return not self.dump() and self.start is None

    def __str__(self) -> str:
        """Such as “type order.*, customer.id=42”; without its range."""
        words = [f"{name} {value}" for name, value in self.dump().items() if name != "fields"]
        return ", ".join([*words, *map(str, self.fields)]) or "all events"

    def of(self, events: QuerySet[Event]) -> QuerySet[Event]:
        """The events among these that meet the conditions."""
        if self.source:
            events = events.filter(source_id=self._source_id)
        if self.type:
            events = of_type(events, self.type)
        if self.subject:
            events = events.filter(subject=self.subject).exclude(subject="")
        if self.start:
            events = events.filter(received_at__gte=self.start)
        if self.end:
            events = events.filter(received_at__lt=self.end)
        for condition in self.fields:
            events = with_field(events, condition)
        return events

    def in_order(self, events: QuerySet[Event]) -> QuerySet[Event]:
        """The events among these that an index has in the order of `seq`, and that the search must read."""
        if self.type and GLOB.isdisjoint(self.type):
            return events.filter(type=self.type)
        return events.filter(source_id=self._source_id) if self.source else events

    def within(self, events: QuerySet[Event]) -> QuerySet[Event]:
        """The events among these whose `seq` is in the range."""
        events = events.filter(seq__gt=self.above) if self.above else events
        return events.filter(seq__lte=self.upto) if self.upto is not None else events

    @cached_property
    def above(self) -> int:
        """A `seq` below those of all events of the range."""
        return seq_before(self.start) if self.start else 0

    @cached_property
    def upto(self) -> int | None:
        """The `seq` that no event of the range exceeds; None: there is no limit."""
        return seq_after(self.start, self.end) if self.end else None

    @cached_property
    def _source_id(self) -> UUID:
        return Source.objects.filter(slug=self.source).values_list("pk", flat=True).first() or UUID(int=0)


def of_type(events: QuerySet[Event], pattern: str) -> QuerySet[Event]:
    """The events of a type, or of the known types that fit a pattern."""
    if GLOB.isdisjoint(pattern):
        return events.filter(type=pattern)
    return events.filter(type__in=[type for type in known_types() if fnmatchcase(type, pattern)])


def known_types() -> list[str]:
    """The types of recorded events, at most MOST_TYPES, in order."""
    return sorted(fetch_column(TYPES, {"most": MOST_TYPES}))


def with_field(events: QuerySet[Event], condition: FieldIs) -> QuerySet[Event]:
    shapes = [json.dumps(shape) for shape in condition.shapes()]
    either = " OR ".join([HAS_FIELD] * len(shapes))
    return events.filter(RawSQL(f"({either})", shapes, output_field=BooleanField()))  # noqa: S611  (our own parts)


def _steps(path: str) -> list[str | None]:
    """The names of a path; None: any element of a list."""
    steps: list[str | None] = []
    position = 0
    while position < len(path) or not steps:
        found = STEP.match(path, position)
        if not found or not found[0]:
            raise _wrong(path)
        if name := found["name"]:
            steps.append(_unquoted(path, name) if name.startswith('"') else name)
        steps += [None] * (len(found["lists"]) // 2)
        position = found.end()
        if position < len(path):
            if path[position] != "." or position + 1 == len(path):
                raise _wrong(path)
            position += 1
    return steps


def _unquoted(path: str, name: str) -> str:
    try:
        found = str(json.loads(name))
    except ValueError:
        raise _wrong(path) from None
    if not is_storable(found):
        raise _wrong(path)
    return found


def _wrong(path: str) -> RuleError:
    example = 'customer.id, items[].sku or "a.b".c'
    return RuleError(f"{path[:100]!r} is not a path; use e.g. {example}", field="field")


def _meanings(value: str) -> Iterable[Any]:
    try:
        meant = parse_json(value.encode())
        require_storable(meant)
    except Unreadable:  # also JSON that no data holds, such as 1e400
        return [value]
    if isinstance(meant, str | dict | list):
        return [meant]
    return [meant, value]


def _around(steps: Sequence[str | None], value: Any) -> Any:
    for step in reversed(steps):
        value = [value] if step is None else {step: value}
    return value
