"""The filter of runs whose time from event to start is known, for the number on the first page that counts them."""

from datetime import UTC, datetime

from django.db.models import QuerySet

from agents.kernel.ids import first_id_at
from config.console.parts.filters import LinkedFilter
from runs.models import NIL, Run

STARTED = 1_000  # the newest runs of a span, for the time from event to start
FORMAT = "%Y-%m-%dT%H:%MZ"


def interval(start: datetime, end: datetime) -> str:
    """`2026-11-26T20:00Z/2026-11-26T21:00Z`: the end is not part of it."""
    return "/".join(at.astimezone(UTC).strftime(FORMAT) for at in (start, end))


class StartedFilter(LinkedFilter):
    """The newest runs of a span of time that an event woke, and that started: those whose time from event to start is known. Replays,
    forks and spawned runs have the time of an older one in their ids."""

    title = "started in"
    parameter_name = "started"

    def parse(self, text: str) -> tuple[datetime, datetime] | None:
        try:
            start, end = (datetime.strptime(part, FORMAT).replace(tzinfo=UTC) for part in text.split("/"))
        except ValueError:
            return None
        return start, end

    def label(self, value: tuple[datetime, datetime]) -> str:
        return interval(*value).replace("T", " ").replace("/", " – ")

    def narrow(self, rows: QuerySet[Run], value: tuple[datetime, datetime]) -> QuerySet[Run]:
        start, end = map(first_id_at, value)
        newest = Run.objects.filter(id__gte=start, id__lt=end).order_by("-id").values("pk")[:STARTED]
        return rows.filter(pk__in=newest, parent_id=None, forked_from_id=None, replay_id=NIL, started_at__isnull=False)
