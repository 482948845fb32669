"""The versions of the code that workers run."""

from runs.db.sql import fetch_column
from runs.models import Worker
from runs.processes.alive import alive

# Of the workers that run now; without one, of the last that ran.
LAST = "SELECT version FROM runs_worker WHERE kind = 'worker' ORDER BY started_at DESC LIMIT 1"


def running_versions() -> list[str]:
    """The versions of the code that workers run. During a deploy, they are two."""
    found = alive().filter(kind=Worker.Kind.WORKER).order_by().values_list("version", flat=True).distinct()
    return sorted(found) or fetch_column(LAST)
