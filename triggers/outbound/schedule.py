"""Pure: when an attempt that failed is repeated. The schedule of Standard Webhooks, over three days."""

import random
from datetime import timedelta

BETWEEN = [
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=14),
    timedelta(hours=20),
    timedelta(hours=24),
]
ATTEMPTS = len(BETWEEN) + 1
JITTER = 0.2  # of each pause, at most, is added: what failed together does not come back together
PATIENCE = timedelta(days=5)  # after that, an event that had to wait for others fails with its next attempt


def pause_after(attempts: int, asked: timedelta | None = None) -> timedelta | None:
    """The pause after so many failed attempts, at least as long as the receiver requested; None: that was the last one."""
    if attempts >= ATTEMPTS:
        return None
    usual = BETWEEN[max(attempts, 1) - 1]
    return max(usual, asked or timedelta()) + usual * random.uniform(0, JITTER)  # noqa: S311  (no secret)
