"""The time by the database's clock, for what cannot ask it: signatures are checked and made by it, so a host whose own clock is minutes
off refuses nothing. Each renewal of a process's row reads the database's clock; in between, a clock counts that cannot be set.
"""

import time
from datetime import UTC, datetime, timedelta

MOST_DOUBT = 1.0  # seconds that the answer may have taken
HOLDS = 3600.0  # seconds; the database is away, or this process renews no row
# It goes on while the host sleeps, and does not follow when its wall clock is set.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_read: tuple[float, float] | None = None  # the database's time in seconds since 1970, and the steady one of that moment


def note(database: float, *, took: float) -> None:
    """The database's time, which has just been read; `took`: by a statement of so many seconds."""
    global _read
    if took <= MOST_DOUBT:
        _read = database, steady()


def forget() -> None:
    """From now on it is this host's own time again."""
    global _read
    _read = None


def now() -> datetime:
    """The database's time within about a second; this host's own as long as the database's is not known."""
    read = _read  # another thread may note a new one
    if read is None:
        return datetime.now(UTC)
    database, at = read
    passed = steady() - at
    return datetime.fromtimestamp(database, UTC) + timedelta(seconds=passed) if passed < HOLDS else datetime.now(UTC)


def steady() -> float:
    return time.clock_gettime(_STEADY)
