"""The on_commit hooks of a body: they run after the commit of the run's success, and cannot change it."""

import faulthandler
import time
from collections.abc import Callable, Sequence

import structlog
from django.db import connection

from runs.attempt.deadline import deadline
from runs.claim import HARD_DEADLINE_AFTER, Claim
from runs.exceptions import DeadlineExceeded

log = structlog.get_logger(__name__)

Hook = Callable[[], object]


def hooks_after(before: int) -> list[Hook]:
    """Remove and return the hooks that the body registered with transaction.on_commit; `run_hooks` runs them."""
    hooks: list[Hook] = [entry[1] for entry in connection.run_on_commit[before:]]
    del connection.run_on_commit[before:]
    return hooks


def run_hooks(claim: Claim, hooks: Sequence[Hook]) -> None:
    """Run the on_commit hooks of the body, within its timeout. The run has already succeeded. The parent does not watch this
    process meanwhile, because it runs no run; so a hook that does not stop ends the process."""
    if not hooks:
        return
    seconds = claim.policy.timeout
    missed = DeadlineExceeded(f"the on_commit hooks of the body took longer than its timeout of {seconds:g} s")
    faulthandler.dump_traceback_later(seconds + HARD_DEADLINE_AFTER, exit=True, file=2)
    ends = time.monotonic() + seconds
    try:
        for hook in hooks:
            try:
                with deadline(max(ends - time.monotonic(), 0.001), lambda _: missed):
                    hook()
            except BaseException:
                log.warning("run.error_after_commit", run=str(claim.run_id), agent=claim.agent, exc_info=True)
    finally:
        faulthandler.cancel_dump_traceback_later()
