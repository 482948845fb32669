"""Wait for a run to finish, for the client of a request."""

from threading import BoundedSemaphore
from time import monotonic, sleep
from uuid import UUID

from runs.models import Run
from runs.states import FINISHED

LONGEST = 30.0  # seconds
FIRST_LOOK, LAST_LOOK = 0.05, 0.25  # seconds between two looks, growing from the first value to the last
# Each watcher occupies a thread of the web process; webhooks must always find a free one.
WATCHERS = BoundedSemaphore(12)


def watch(run_id: UUID, patience: float) -> None:
    """Return when the run is finished, or after `patience` seconds; at once if there are too many watchers."""
    if not WATCHERS.acquire(blocking=False):
        return
    try:
        _look_until_finished(run_id, monotonic() + min(patience, LONGEST))
    finally:
        WATCHERS.release()


def _look_until_finished(run_id: UUID, deadline: float) -> None:
    pause = FIRST_LOOK
    while not _is_finished(run_id):
        left = deadline - monotonic()
        if left <= 0:
            return
        sleep(min(pause, left))
        pause = min(pause * 1.2, LAST_LOOK)


def _is_finished(run_id: UUID) -> bool:
    # A run that was deleted counts as finished.
    return Run.objects.values_list("status", flat=True).filter(pk=run_id).first() in {None, *FINISHED}
