"""A run that has failed for good, as one record of level ERROR: what collects errors from the log, such as Sentry's SDK, gets each
failure once, with its exception if there was one in this process."""

import logging
from typing import NamedTuple
from uuid import UUID

from runs.transitions.outcome import Outcome

log = logging.getLogger(__name__)


class Whose(NamedTuple):
    """The run that has ended; "" for the trigger of one that another run has spawned."""

    run_id: UUID
    agent: str
    trigger: str


def log_failure(whose: Whose, outcome: Outcome) -> None:
    log.error(
        "Run %s of %s failed: %s. %s",
        whose.run_id,
        whose.agent,
        outcome.reason,
        outcome.error,
        exc_info=outcome.exception,
        extra={"run": str(whose.run_id), "agent": whose.agent, "trigger": whose.trigger},
    )
