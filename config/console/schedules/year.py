"""A calendar of a year, which highlights excluded days."""

from calendar import Calendar, month_name
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import ClassVar

FIRST, LAST = 1970, 2200  # years that are shown
WEEKDAYS = ("Mo", "Tu", "We", "Th", "Fr", "Sa", "Su")


@dataclass(frozen=True, kw_only=True)
class Day:
    number: int
    label: str | None = None
    is_today: bool = False


@dataclass(frozen=True, kw_only=True)
class Month:
    name: str
    weeks: Sequence[Sequence[Day | None]]


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Consecutive days with the same name."""

    first: date
    last: date
    label: str

    @property
    def words(self) -> str:
        return _said(self.first) if self.first == self.last else f"{_said(self.first)} to {_said(self.last)}"


@dataclass(frozen=True, kw_only=True)
class YearView:
    """Section: the months of a year, with highlighted days."""

    template: ClassVar[str] = "admin/console/year.html"
    title: str
    year: int
    months: Sequence[Month]
    named: int
    stretches: Sequence[Stretch]
    weekdays: ClassVar[Sequence[str]] = WEEKDAYS

    @classmethod
    def of(cls, title: str, year: int, label: Callable[[date], str | None], today: date) -> "YearView":
        months = [
            Month(
                name=month_name[month],
                weeks=[
                    [_day(day, label, today) if day.month == month else None for day in week]
                    for week in Calendar().monthdatescalendar(year, month)
                ],
            )
            for month in range(1, 13)
        ]
        first = date(year, 1, 1)
        days = [day for number in range(366) if (day := first + timedelta(days=number)).year == year]
        named = [(day, name) for day in days if (name := label(day)) is not None]
        return cls(title=title, year=year, months=months, named=len(named), stretches=_stretches(named))

    @property
    def before(self) -> int | None:
        return self.year - 1 if self.year > FIRST else None

    @property
    def after(self) -> int | None:
        return self.year + 1 if self.year < LAST else None


def year_asked(text: str, otherwise: int) -> int:
    """The year in the query if it can be shown, else the default."""
    return int(text) if text.isdecimal() and FIRST <= int(text[:5]) <= LAST else otherwise


def _day(day: date, label: Callable[[date], str | None], today: date) -> Day:
    return Day(number=day.day, label=label(day), is_today=day == today)


def _stretches(named: Sequence[tuple[date, str]]) -> list[Stretch]:
    stretches: list[Stretch] = []
    for day, label in named:
        last = stretches[-1] if stretches else None
        if last and last.label == label and last.last == day - timedelta(days=1):
            stretches[-1] = Stretch(first=last.first, last=day, label=label)
        else:
            stretches.append(Stretch(first=day, last=day, label=label))
    return stretches


def _said(day: date) -> str:
    return f"{day:%a} {day.day} {day:%b}"
