"""Which processes are alive, by the database's clock. Pages, health, alarms, claims and doorbells share these definitions."""

from django.db.models import QuerySet
from django.db.models.expressions import RawSQL

from runs.models import Worker
from runs.processes.lease import EXPIRES, IS_GONE, patience

# Has not stopped, and may be unseen still: for a row of `worker`; its parameters are those of `patience()`.
HOLDS_LEASE = f"(worker.stopped_at IS NULL AND {EXPIRES} > clock_timestamp())"
# And its session has not vanished.
IS_ALIVE = f"({HOLDS_LEASE} AND NOT {IS_GONE})"
# Workers that may claim a run now. It does not look for their sessions: claims ask it, and what a dead worker is counted for waits.
TAKES_RUNS = """(worker.kind = 'worker' AND worker.stopped_at IS NULL AND worker.draining_at IS NULL
  AND coalesce(worker.expires_at, worker.seen_at + %(lease)s::interval) > clock_timestamp())"""
SERVES = f"({TAKES_RUNS} AND NOT {IS_GONE})"  # for pages and alarms


def alive() -> QuerySet[Worker]:
    """The live processes."""
    literals = {name: f"'{wait.total_seconds()} s'" for name, wait in patience().items()}
    sql = f"SELECT worker.id FROM runs_worker worker WHERE {IS_ALIVE}" % literals  # noqa: S608  (our own parts)
    return Worker.objects.filter(id__in=RawSQL(sql, []))  # noqa: S611
