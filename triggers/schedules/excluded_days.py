"""The days an exclusion calendar names, one a line: a date, a range of dates, or a day of every year. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property

from triggers.exceptions import RuleError
from triggers.schedules.clock import refuse_long

EXAMPLES = "2026-12-25 Christmas, 2026-12-24..2027-01-06 Break, or *-05-01 Labour Day"
LINE = re.compile(r"(\*|\d{4})-(\d\d)-(\d\d)(?:\s*\.\.\s*(\d{4})-(\d\d)-(\d\d))?(?:\s+(.*))?")
LEAP_YEAR = 2000
LONGEST_TEXT = 50_000  # characters
MOST_RANGES = 1000
LONGEST_RANGE = 100  # years


@dataclass(frozen=True, kw_only=True)
class ExcludedDays:
    """Each with its label: the words behind it, or else the day as it is written."""

    ranges: tuple[tuple[date, date, str], ...] = ()
    yearly: Mapping[tuple[int, int], str]

    @classmethod
    def parse(cls, text: str) -> "ExcludedDays":
        """Parse lines; blank lines and lines that begin with # are ignored. RuleError names the invalid line."""
        refuse_long(text, "a calendar", LONGEST_TEXT, field="days")
        ranges: list[tuple[date, date, str]] = []
        yearly: dict[tuple[int, int], str] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            if line := line.partition("#")[0].strip():
                try:
                    _read(line, ranges, yearly)
                except ValueError as error:
                    raise RuleError(
                        f"line {number}, {line!r}: {error}; write such as {EXAMPLES}", field="days"
                    ) from None
        if len(ranges) > MOST_RANGES:
            raise RuleError(f"{len(ranges):,} days and ranges; a calendar has at most {MOST_RANGES:,}", field="days")
        return cls(ranges=tuple(ranges), yearly=yearly)

    def label(self, day: date) -> str | None:
        """The name of the day, if it is excluded."""
        named = next((label for first, last, label in self._by_year.get(day.year, ()) if first <= day <= last), None)
        return named or self.yearly.get((day.month, day.day))

    @cached_property
    def _by_year(self) -> Mapping[int, Sequence[tuple[date, date, str]]]:
        """The ranges that touch each year: a day is looked for among a few."""
        years: dict[int, list[tuple[date, date, str]]] = {}
        for first, last, label in self.ranges:
            for year in range(first.year, last.year + 1):
                years.setdefault(year, []).append((first, last, label))
        return years


def _read(line: str, ranges: list[tuple[date, date, str]], yearly: dict[tuple[int, int], str]) -> None:
    match = LINE.fullmatch(line)
    if match is None:
        raise ValueError("this is no day")
    year, month, day, *until, words = match.groups()
    label = words or line
    if year == "*":
        if any(until):
            raise ValueError("a range needs its years")
        first = date(LEAP_YEAR, int(month), int(day))
        yearly.setdefault((first.month, first.day), label)
        return
    first = date(int(year), int(month), int(day))
    last = date(*map(int, until)) if any(until) else first
    if last < first:
        raise ValueError("the range ends before it begins")
    if last.year - first.year > LONGEST_RANGE:
        raise ValueError(f"the range is longer than {LONGEST_RANGE} years")
    ranges.append((first, last, label))
