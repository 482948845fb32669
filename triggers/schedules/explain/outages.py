"""When nothing ticked: the times without a Beat, from the rows that its processes leave."""

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from runs.db.sql import fetch

# One that vanished was alive until it was seen last, or a look longer; one that stopped said when.
SILENCE = """
WITH beat AS (
  SELECT started_at, CASE WHEN stopped_at IS NULL OR stopped_reason = 'unseen' THEN seen_at ELSE stopped_at END AS ended_at
  FROM runs_worker WHERE kind = 'beat'
)
SELECT coalesce(bool_or(%(at)s::timestamptz BETWEEN started_at AND ended_at + %(look)s::interval), false),
       max(ended_at) FILTER (WHERE started_at <= %(at)s::timestamptz),
       min(started_at) FILTER (WHERE started_at > %(at)s::timestamptz)
FROM beat
"""


@dataclass(frozen=True, kw_only=True)
class Silence:
    """No Beat was alive; None: since before anybody can tell, or until now."""

    since: datetime | None
    until: datetime | None


def silence_at(at: datetime) -> Silence | None:
    """The time without a Beat that an instant lies in; None if one was alive. Rows of processes are kept for
    WAKEFUL_KEEP_RUNS."""
    [(alive, since, until)] = fetch(SILENCE, {"at": at, "look": settings.WAKEFUL_SAFETY_LOOK})
    return None if alive else Silence(since=since, until=until)
