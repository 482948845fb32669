"""When a schedule may fire: inside its active hours, and not on excluded days. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from triggers.schedules.clock import EARLIEST, EVER, change_of_clock, instant_of
from triggers.schedules.excluded_days import ExcludedDays
from triggers.schedules.terms.active_hours import ActiveHours


@dataclass(frozen=True, kw_only=True)
class Closure:
    """Why a nominal time does not fire: outside active hours, or on an excluded day; `until` is when that ends."""

    reason: str
    detail: str
    until: datetime


@dataclass(frozen=True, kw_only=True)
class OpenTimes:
    """Active hours and excluded days in a zone; `days` by the name of their calendar."""

    zone: ZoneInfo
    hours: ActiveHours | None = None
    days: Sequence[tuple[str, ExcludedDays]] = ()

    @property
    def is_limited(self) -> bool:
        return bool(self.hours or self.days)

    def closed(self, instant: datetime) -> Closure | None:
        """Why nothing fires at an instant; None: it may."""
        local = instant.astimezone(self.zone)
        for name, days in self.days:
            if (label := days.label(local.date())) is not None:
                detail = f"{name}: {label}" if label else name
                return Closure(reason="excluded", detail=detail, until=self._midnight_after(local.date()))
        if self.hours:
            is_open, until = self._period(instant, self.hours)
            if not is_open:
                # On an excluded day the reason is another one.
                until = min(until, self._midnight_after(local.date())) if self.days else until
                return Closure(reason="inactive", detail=self.hours.text, until=until)
        return None

    def began(self, instant: datetime) -> datetime:
        """Since when, at the least, it has been open, or closed, without a break, as it is at an instant."""
        local = instant.astimezone(self.zone)
        clock = local.replace(tzinfo=None, fold=0)
        edge = datetime.min
        if self.days:
            edge = datetime.combine(clock.date(), time())
        if self.hours:
            edge = max(edge, self.hours.began(clock))
        if edge == datetime.min:
            return EARLIEST
        began = instant - (clock - edge)
        if began.astimezone(self.zone).utcoffset() != local.utcoffset():
            # The clock changed since: what it shows before that is looked at again.
            began = change_of_clock(began, instant, self.zone)
        return began

    def closes(self, instant: datetime) -> datetime:
        """When the stretch of open time around an instant ends, at the latest."""
        ends = [EVER]
        if self.days:
            ends.append(self._midnight_after(instant.astimezone(self.zone).date()))
        if self.hours:
            ends.append(self._period(instant, self.hours)[1])
        return min(ends)

    def _period(self, instant: datetime, hours: ActiveHours) -> tuple[bool, datetime]:
        local = instant.astimezone(self.zone)
        is_open, change = hours.period(local.replace(tzinfo=None))
        if change == datetime.max:
            return is_open, EVER
        end = instant_of(change, self.zone)
        if end <= instant:
            # In an hour that the clock shows twice: it is the second showing that ends.
            end = change.replace(tzinfo=self.zone, fold=1).astimezone(UTC)
        end = max(end, instant + timedelta(seconds=1))
        if end.astimezone(self.zone).utcoffset() != local.utcoffset():
            # What the clock shows again may be open again: the period is looked at again where the clock changes.
            end = change_of_clock(instant, end, self.zone)
        return is_open, end

    def _midnight_after(self, day: date) -> datetime:
        return instant_of(datetime.combine(day + timedelta(days=1), time()), self.zone)
