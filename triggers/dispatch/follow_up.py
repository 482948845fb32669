"""When the dispatcher looks once more without a further NOTIFY.

A process sends one NOTIFY per throttle and leaves out the others (`runs.db.nudge`). Each commit whose NOTIFY it leaves out is visible
before the throttle after one that it has sent is over. So a look that begins FOLLOW_UP after the last NOTIFY has come finds all of
them. The dispatcher's own commits send no NOTIFY either, so it looks once more after its own work.
"""

import time

FOLLOW_UP = 0.03  # seconds: more than the longest throttle that `config.checks` allows
AT_MOST = 0.05  # seconds between the first NOTIFY and the look, if further ones that can wait follow it
AGAIN = 0.01  # seconds, after work that may have left or made more


class FollowUp:
    """The look that is owed. Call `hear` when a NOTIFY has come, and `looked` after each look."""

    def __init__(self) -> None:
        self.heard_at = float("-inf")
        self.owed_since: float | None = None
        self.again_at: float | None = None

    def hear(self) -> None:
        self.heard_at = time.monotonic()
        if self.owed_since is None:
            self.owed_since = self.heard_at

    def looked(self, began: float, *, has_worked: bool, has_more: bool) -> None:
        """`began`: when the look did. `has_worked`: it dispatched events. `has_more`: it dispatched several, or did other work."""
        self.owed_since = began if self.heard_at + FOLLOW_UP > began else None
        if has_worked:
            self.hear()  # like a NOTIFY, which this process does not send
        self.again_at = time.monotonic() + AGAIN if has_more else None

    @property
    def wait(self) -> float | None:
        """Seconds until the look; None: none is owed."""
        due = [] if self.owed_since is None else [min(self.heard_at + FOLLOW_UP, self.owed_since + AT_MOST)]
        due += [] if self.again_at is None else [self.again_at]
        return max(min(due) - time.monotonic(), 0.0) if due else None
