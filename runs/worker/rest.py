"""When a worker's parent rests: no child runs anything, so no run waits for its lease to end."""

import time
from datetime import timedelta

from django.conf import settings

from runs.processes import lease


class Rest:
    """It is put off in the consumer's thread, and begins and ends in the parent's."""

    def __init__(self) -> None:
        self.is_allowed = False  # by the last renewal
        self.is_taken = False
        self.put_off_until = 0.0  # monotonic seconds
        self.put_off()

    def put_off(self) -> None:
        """A child runs something, or may do so at any moment: renew with the lease for a while."""
        self.put_off_until = time.monotonic() + settings.WAKEFUL_SAFETY_LOOK.total_seconds()

    @property
    def is_put_off(self) -> bool:
        return time.monotonic() < self.put_off_until

    def begin_or_end(self) -> bool:
        """Before a renewal: whether it is that of a process that owns nothing."""
        self.is_taken = self.is_allowed and not self.is_put_off
        return self.is_taken

    @property
    def is_over(self) -> bool:
        return self.is_taken and self.is_put_off

    @property
    def every(self) -> timedelta:
        """The time until the next renewal; none if something has come during the last one."""
        if self.is_over:
            return timedelta(0)
        pace: timedelta = lease.rest() if self.is_taken else settings.WAKEFUL_LEASE_RENEW
        return pace
