"""Nominal times that schedules missed lately."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.db.models.functions import Now

from runs.db.sql import fetch_as
from triggers.models import Schedule, Skip

REASONS = (Skip.Reason.MISSED, Skip.Reason.WINDOW, Skip.Reason.MOST, Skip.Reason.REFUSED)
LOOKED_AT = 1000  # the newest stretches of missed times
MISSED = """
SELECT newest.schedule_id, periodic.name, sum(coalesce(newest.count, 1))::bigint AS count, min(newest.first) AS first,
       max(newest.last) AS last, string_agg(DISTINCT newest.reason, ', ') AS reasons
FROM (
  SELECT schedule_id, reason, count, first, last FROM triggers_skip
  WHERE reason IN ('missed', 'window', 'most', 'refused') AND created_at > (SELECT clock_timestamp()) - interval '1 day'
  ORDER BY created_at DESC LIMIT %s::int) newest
JOIN triggers_schedule schedule ON schedule.id = newest.schedule_id
JOIN django_celery_beat_periodictask periodic ON periodic.id = schedule.task_id
GROUP BY newest.schedule_id, periodic.name ORDER BY max(newest.last) DESC, periodic.name LIMIT %s::int
"""


@dataclass(frozen=True, kw_only=True)
class Missed:
    """Missed nominal times of one schedule: their number, the first and the last, and the reasons in `Skip`'s words."""

    schedule_id: int
    name: str
    count: int
    first: datetime
    last: datetime
    reasons: str


def missed_of(schedule: Schedule) -> QuerySet[Skip]:
    """Those of one schedule, the newest first."""
    lately = Skip.objects.filter(schedule=schedule, created_at__gt=Now() - timedelta(days=1), reason__in=REASONS)
    return lately.order_by("-last")[:LOOKED_AT]


def missed_lately(limit: int) -> list[Missed]:
    """Missed nominal times of the last day, by schedule, the latest first."""
    return fetch_as(Missed, MISSED, [LOOKED_AT, limit])
