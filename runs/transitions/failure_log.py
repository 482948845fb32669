"""A run that has failed for good, as one record of level ERROR: what collects errors from the log, such as Sentry's SDK, gets each
failure once, with its exception if there was one in this process."""

import logging
from uuid import UUID

from runs.transitions.outcome import Outcome

log = logging.getLogger(__name__)


def log_failure(run_id: UUID, agent: str, outcome: Outcome) -> None:
    log.error(
        "Run %s of %s failed: %s. %s",
        run_id,
        agent,
        outcome.reason,
        outcome.error,
        exc_info=outcome.exception,
        extra={"run": str(run_id), "agent": agent},
    )
