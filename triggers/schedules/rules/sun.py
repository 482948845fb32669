"""When the sun rises, sets or stands highest at a place, as Celery's `solar` schedule has it (by way of ephem)."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

from celery.exceptions import ImproperlyConfigured
from celery.schedules import solar

from triggers.exceptions import RuleError

DAY = timedelta(days=1)
APART = timedelta(hours=12)  # at least, between two of a kind
YEAR = timedelta(days=366)  # within which each happens, where it ever does


def check_solar(event: str, latitude: float, longitude: float) -> None:
    """ValueError if there is no such event or place, or if ephem is not installed."""
    try:
        solar(event, latitude, longitude)  # type: ignore[arg-type]  # this is the check
    except ImproperlyConfigured:
        raise ValueError("rules by the sun need the package ephem: install wakeful[solar], or use a crontab") from None


def solar_times(event: str, latitude: float, longitude: float, after: datetime) -> Iterator[datetime]:
    """The solar times after an instant, to the second. Each is searched for from the midnight (UTC) before it, so that
    the result does not depend on where the search starts.
    """
    day = datetime.combine(after.astimezone(UTC), time(), UTC) - DAY
    while True:
        found = _next(event, latitude, longitude, day)
        if found - day >= YEAR - DAY:
            return
        midnight = datetime.combine(found, time(), UTC)
        if midnight > day:  # there was none on this day: search again from the midnight before it
            day = midnight
            continue
        while found < day + DAY:
            nominal = (found + timedelta(milliseconds=500)).replace(microsecond=0)
            if nominal > after:
                yield nominal
            found = _next(event, latitude, longitude, found + APART)
        day += DAY


def _next(event: str, latitude: float, longitude: float, after: datetime) -> datetime:
    theirs = solar(event, latitude, longitude, nowfun=lambda: after)  # type: ignore[arg-type]  # it has been checked
    wait: timedelta = theirs.remaining_estimate(after)
    return after + wait


@dataclass(frozen=True, kw_only=True)
class Solar:
    """A rule by the sun at a place: sunrise, sunset, solar_noon, or dawn and dusk (civil, nautical, astronomical)."""

    event: str
    latitude: float  # degrees, north of the equator
    longitude: float  # degrees, east of Greenwich

    def __post_init__(self) -> None:
        try:
            check_solar(self.event, self.latitude, self.longitude)
        except ValueError as error:
            raise RuleError(str(error)) from None

    @property
    def words(self) -> str:
        """Such as "at sunrise (48.2° N, 16.37° E)"."""
        north, east = (
            f"{abs(self.latitude):g}° {'SN'[self.latitude >= 0]}",
            f"{abs(self.longitude):g}° {'WE'[self.longitude >= 0]}",
        )
        return f"at {self.event.replace('_', ' ')} ({north}, {east})"

    def __str__(self) -> str:
        return f"solar {self.event} {self.latitude:g} {self.longitude:g}"

    def fires(self, after: datetime) -> Iterator[datetime]:
        """The nominal times after an instant, in order; none where the solar event never happens."""
        return solar_times(self.event, self.latitude, self.longitude, after)
