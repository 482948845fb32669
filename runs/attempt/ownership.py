"""The database session of a claim, and whether the claim still owns its run."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

import structlog
from django.db import connection

from runs.claim import Claim
from runs.db.outage import CONNECTION_ERRORS
from runs.db.poll import readable
from runs.db.sql import fetch
from runs.exceptions import RunLost
from runs.models import Run
from runs.states import RunStatus

log = structlog.get_logger(__name__)

T = TypeVar("T")
NAME_SESSION = """
SELECT set_config('application_name', %s::text, false) FROM runs_run
WHERE id = %s::uuid AND epoch = %s::int AND claim = %s::uuid
"""
# Like NAME_SESSION, for a body that begins late: its timeout counts from now.
BEGIN_LATE = """
UPDATE runs_run SET deadline_at = clock_timestamp() + (deadline_at - claimed_at)
FROM (SELECT set_config('application_name', %s::text, false)) named
WHERE id = %s::uuid AND epoch = %s::int AND claim = %s::uuid
RETURNING id
"""
LATE = 1.0  # seconds between the request of a claim and its body
PATIENCE = 60.0  # seconds without a database before the process gives up


def open_session(claim: Claim, *, begins: bool = False) -> None:
    """Make sure that the connection works and has the claim's name, by which a rescuer finds and ends it. RunLost: another
    process has taken the run since the claim."""
    driver = connection.connection
    # A terminated session shows as a readable socket.
    lives = driver is not None and not driver.closed and not readable([driver.fileno()], 0)
    # A body may have switched autocommit off: nothing would ever be committed.
    lives = lives and (connection.get_autocommit() or connection.in_atomic_block)
    is_late = begins and time.monotonic() - claim.asked > LATE
    if lives and claim.is_named and not is_late:
        return
    if not lives:
        connection.close()
    if not fetch(BEGIN_LATE if is_late else NAME_SESSION, [claim.session_name, claim.run_id, claim.epoch, claim.id]):
        raise RunLost(f"run {claim.run_id} left epoch {claim.epoch}")


def committed(claim: Claim) -> bool:
    """Did the last transaction commit, before its answer was lost or a hook failed? RunLost: another process owns the run."""
    run = with_patience(lambda: Run.objects.only("status", "epoch", "claim").filter(pk=claim.run_id).first())
    if run is None:
        return True  # the gate of the run was quiet
    if not is_still(run, claim):
        raise RunLost
    return bool(run.status == RunStatus.SUCCEEDED)


def is_still(run: Run, claim: Claim) -> bool:
    """Is this claim the run's last one?"""
    return (run.epoch, run.claim) == (claim.epoch, claim.id)


def with_patience(action: Callable[[], T]) -> T:
    """Call `action`, reconnecting while the database is away. After PATIENCE this process exits, and its run counts as lost."""
    give_up_at = time.monotonic() + PATIENCE
    pause = 0.1
    while True:
        try:
            return action()
        except CONNECTION_ERRORS:
            if time.monotonic() > give_up_at:
                log.exception("worker.gave_up", patience=PATIENCE)
                os._exit(1)
            connection.close()
            time.sleep(pause)
            pause = min(pause * 2, 2.0)
