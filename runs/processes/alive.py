"""Which processes are alive, by the database's clock. Pages, health, alarms, claims and doorbells share this definition."""

from django.db.models import Case, DurationField, QuerySet, Value, When
from django.db.models.functions import Now

from runs.models import Worker
from runs.processes.lease import ALLOWED, OWNERS, patience

# `alive` in SQL, for a row of `worker`; its parameters are those of `patience()`.
IS_ALIVE = f"""(worker.stopped_at IS NULL AND worker.seen_at > clock_timestamp()
  - {ALLOWED.format(kind="worker.kind")})"""
# Workers that may claim a run now.
TAKES_RUNS = """(worker.kind = 'worker' AND worker.stopped_at IS NULL AND worker.draining_at IS NULL
  AND worker.seen_at > clock_timestamp() - %(lease)s::interval)"""


def alive() -> QuerySet[Worker]:
    """Processes that have not stopped, and were seen within the time allowed for their kind."""
    wait = patience()
    allowed = Case(
        When(kind__in=OWNERS, then=Value(wait["lease"])),
        default=Value(wait["others"]),
        output_field=DurationField(),
    )
    return Worker.objects.filter(stopped_at=None, seen_at__gt=Now() - allowed)
