"""How long the dispatcher's look at all other work may wait while it dispatches single events."""

import time

AT_MOST = 0.05  # seconds between the first event and the look


class Late:
    """The look that is put off. Call `looked` after each look, with the seconds until the next one is due."""

    def __init__(self) -> None:
        self.since: float | None = None
        self.due_at = float("-inf")

    def may_wait(self) -> bool:
        """Put the look off, unless it has been for too long."""
        now = time.monotonic()
        self.since = now if self.since is None else self.since
        return now - self.since < AT_MOST

    def looked(self, wait: float) -> None:
        self.since, self.due_at = None, time.monotonic() + wait

    @property
    def wait(self) -> float:
        """The seconds until the look is due, as it seemed at the last one."""
        return max(self.due_at - time.monotonic(), 0.0)
