"""A time as a person enters it: on the wall clock of a zone, where it may not exist or may occur twice."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agents.kernel.instants import instant_with_offset
from triggers.exceptions import RuleError

EARLIEST = datetime.min.replace(tzinfo=UTC)
EVER = datetime.max.replace(tzinfo=UTC)


def meant(at: datetime, zone: ZoneInfo) -> datetime:
    """The instant that a time without an offset means in a zone: the end of the gap where it did not exist, the first time
    where it came twice. A time with an offset is exact."""
    return instant_of(at, zone) if at.tzinfo is None else at.astimezone(UTC)


def note_on(at: datetime, zone: ZoneInfo, *, follows_elapsed_time: bool) -> str:
    """The effect of clock changes on a time without an offset, and on a rule that names it, as text; empty if there is
    none.
    """
    if at.tzinfo is not None:
        return ""
    instant, shown = instant_of(at, zone), showings(at, zone)
    day = f"{at:%-d %B %Y} in {zone}"
    if not shown:
        told = f"{at:%H:%M} does not exist on {day}: the clocks go forward"
        if follows_elapsed_time:
            return f"{told} to {clock(instant, zone)}, and its rule follows elapsed time: nothing fires in between."
        return f"{told}, and what is set for then fires at {clock(instant, zone)}."
    if len(shown) == 2:
        told = f"{at:%H:%M} comes twice on {day}"
        if follows_elapsed_time:
            second = shown[1].astimezone(zone).isoformat(timespec="minutes")
            return f"{told}, and its rule follows elapsed time: this is the first ({instant:%H:%M} UTC), the second is {second}."
        return f"{told}; what is set for then fires once, the first time ({instant:%H:%M} UTC)."
    return ""


def shown_before(instant: datetime, zone: ZoneInfo) -> datetime | None:
    """When the clocks of a zone showed for the first time what they show at this instant for the second; else None."""
    local = instant.astimezone(zone)
    return local.replace(fold=0).astimezone(UTC) if local.fold else None


def say(instant: datetime, zone: ZoneInfo, *, with_zone: bool = True) -> str:
    """Such as "Fri 20 Nov 2026, 09:00 (Europe/Vienna)"."""
    local = instant.astimezone(zone)
    second_pass = " (second pass)" if local.fold else ""
    return f"{local:%a %-d %b %Y}, {clock(instant, zone)}{second_pass}" + (f" ({zone})" if with_zone else "")


def clock(instant: datetime, zone: ZoneInfo) -> str:
    """The time as a clock shows it, with seconds unless they are zero."""
    local = instant.astimezone(zone)
    return f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"


NONE = timedelta(0)
LONGEST_TEXT = 300  # characters of a rule, or of any part of one: no parser gets more
LONGEST_ZONE = 100  # characters of the name of a zone
FIRST_YEAR, LAST_YEAR = 1900, 9998  # of instants: within them, arithmetic does not leave the calendar


def refuse_long(text: str, what: str, most: int = LONGEST_TEXT, *, field: str = "") -> None:
    """RuleError if a text has more characters than any that makes sense."""
    if len(text) > most:
        raise RuleError(f"{what} has at most {most:,} characters, not {len(text):,}", field=field)


def refuse_beyond(instant: datetime, *, field: str = "") -> None:
    """RuleError if an instant is so early or so late that arithmetic about it could leave the calendar."""
    if not FIRST_YEAR <= instant.year <= LAST_YEAR:
        raise RuleError(f"{instant:%Y-%m-%d} is not between the years {FIRST_YEAR} and {LAST_YEAR}", field=field)


def aware(instant: str | datetime) -> datetime:
    """The instant in UTC; RuleError if it has no offset, or is beyond the calendar."""
    try:
        in_utc = instant_with_offset(instant).astimezone(UTC)
    except ValueError as error:
        raise RuleError(str(error)) from None
    except OverflowError:
        raise RuleError(f"{instant} is beyond the calendar") from None
    refuse_beyond(in_utc)
    return in_utc


def instant_from_row(text: str) -> datetime:
    """An instant in UTC from the JSON of a row; RuleError if it is beyond the calendar."""
    try:
        instant = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise RuleError(f"{text!r} is beyond the calendar") from None
    refuse_beyond(instant)
    return instant


def just_before(instant: datetime) -> datetime:
    """The last earlier instant that PostgreSQL distinguishes from this one."""
    return instant - timedelta(microseconds=1)


def zone_of(name: str) -> ZoneInfo:
    """An IANA zone; RuleError if there is none of that name."""
    refuse_long(name, "the name of a zone", LONGEST_ZONE, field="tz")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise RuleError(
            f"there is no zone {name!r}; write an IANA name, such as Europe/Vienna or UTC", field="tz"
        ) from None


def instant_of(local: datetime, zone: ZoneInfo) -> datetime:
    """When a naive local time happens: the first time where it happens twice, the end of the gap where it never does."""
    instant = local.replace(tzinfo=zone).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == local:
        return instant
    # The two readings of a local time in a gap lie on either side of the change.
    return change_of_clock(local.replace(tzinfo=zone, fold=1).astimezone(UTC), instant, zone)


def showings(local: datetime, zone: ZoneInfo) -> list[datetime]:
    """Each instant at which the clock shows a naive local time: two where it goes back, none in a gap."""
    first, second = (local.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    shift = _put_back(first)
    if shift < NONE:
        return []
    return [at.astimezone(UTC) for at in ((first, second) if shift else (first,))]


def before_second_pass(instant: datetime, zone: ZoneInfo) -> datetime:
    """A local time before any that the clock is still to show for the second time after an instant."""
    local = instant.astimezone(zone)
    return local.replace(tzinfo=None, fold=0) - max(NONE, _put_back(local))


def _put_back(local: datetime) -> timedelta:
    """The time by which the clock is put back where it shows a local time twice; negative in a gap, else zero."""
    before, after = (local.replace(fold=fold).utcoffset() or NONE for fold in (0, 1))
    return before - after


def change_of_clock(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The instant between two at which a zone takes on the offset of the later one."""
    before, offset = before.replace(microsecond=0), after.astimezone(zone).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(after - before) // timedelta(seconds=2))
        if middle.astimezone(zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after
