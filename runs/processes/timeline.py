"""Notice a failover. A promoted standby may lack the last commits of the old primary: claims, steps, results. Workers still remember
them, so a claim ends with its timeline: its fence compares the timeline, and the process that notices a new one closes the row of
every worker. Each worker comes back as a new incarnation, and the rescue hands on the runs.
"""

import structlog
from django.db import transaction

from runs.db.nudge import nudge_dispatcher
from runs.db.sql import execute, fetch

log = structlog.get_logger(__name__)

FAILED_OVER = "failover"  # why a worker's row was closed
LOOK = "SELECT runs_primary_identity(), (SELECT identity FROM runs_primary)"
FIRST = "INSERT INTO runs_primary (id, identity) VALUES (1, %(identity)s::text) ON CONFLICT (id) DO NOTHING"
# One of the processes that notice it succeeds; `seen_at` is the newest known commit of the old primary.
ANOTHER = """
UPDATE runs_primary SET
  identity = %(identity)s::text, previous = identity, noticed_at = clock_timestamp(),
  known_until = (SELECT max(seen_at) FROM runs_worker)
WHERE identity = %(known)s::text
"""
CLOSE_WORKERS = """
UPDATE runs_worker SET stopped_at = clock_timestamp(), stopped_reason = %s::text WHERE stopped_at IS NULL AND kind = 'worker'
"""


def notice_failover() -> bool:
    """Call after every (re)connection of a dispatcher or a worker's parent, before it renews anything. True: it is another server,
    or another timeline, and this call was the first to notice. A server that hides its timeline (some managed ones) always
    counts as the same; there, only the identities of claims keep old owners out."""
    [(identity, known)] = fetch(LOOK)
    if not identity or identity == known:
        return False
    names = {"identity": identity, "known": known}
    if known is None:
        execute(FIRST, names)
        return False
    with transaction.atomic():
        if not execute(ANOTHER, names):
            return False
        closed = execute(CLOSE_WORKERS, [FAILED_OVER])
        nudge_dispatcher()
    log.error("database.failed_over", was=known, now=identity, workers=closed)
    return True
