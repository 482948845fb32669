"""What is away, such as a host: each failure makes the next pause longer, and one message at a time asks whether it is back."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from agents.kernel.backoff import backoff

FIRST_PAUSE = 1.0  # seconds
LONGEST_PAUSE = 60.0
MOST_AT_ONCE = 3  # messages to one host


@dataclass(kw_only=True)
class Breaker:
    """Open from the first failure to the next success. While it is open, one try is made after each pause, and the pauses
    grow. Times are in seconds of `clock`."""

    first: float = FIRST_PAUSE
    longest: float = LONGEST_PAUSE
    clock: Callable[[], float] = time.monotonic
    failures: int = 0
    opened_at: float | None = None
    retry_at: float = float("-inf")
    error: str = ""

    @property
    def is_open(self) -> bool:
        return self.opened_at is not None

    @property
    def retry_in(self) -> float:
        """Seconds until the next try; 0: it may be tried now."""
        return max(0.0, self.retry_at - self.clock())

    def failed(self, error: str = "", *, pause: float = 0.0) -> None:
        """`pause`: how long to wait, if the other side named that."""
        now = self.clock()
        if self.opened_at is None:
            self.opened_at = now
        self.failures += 1
        self.retry_at = now + max(backoff(self.first, self.longest, self.failures), pause)
        self.error = error

    def succeeded(self) -> None:
        self.failures, self.opened_at, self.retry_at, self.error = 0, None, float("-inf"), ""


@dataclass
class Breakers:
    """Of the hosts that this process sends to; the empty host is never away."""

    clock: Callable[[], float] = time.monotonic
    most: int = MOST_AT_ONCE
    opened: dict[str, Breaker] = field(default_factory=dict)  # by host
    under_way: Counter[str] = field(default_factory=Counter)

    def began(self, host: str) -> None:
        self.under_way[host] += 1

    def ended(self, host: str) -> None:
        self.under_way[host] -= 1

    def succeeded(self, host: str) -> None:
        self.opened.pop(host, None)

    def failed(self, host: str, pause: float = 0.0) -> None:
        """The host did not take a message; `pause`: how long to wait, if it named that."""
        if host:
            self.opened.setdefault(host, Breaker(clock=self.clock)).failed(pause=pause)

    def room(self, host: str) -> int:
        """How many more messages may be sent to it now."""
        if not host:
            return self.most
        most = 1 if host in self.opened else self.most
        return 0 if self.is_away(host) else max(most - self.under_way[host], 0)

    def is_away(self, host: str) -> bool:
        return host in self.opened and self.opened[host].retry_in > 0

    @property
    def away(self) -> list[str]:
        return [host for host in self.opened if self.is_away(host)]

    @property
    def busy(self) -> list[str]:
        """Hosts that a message is on its way to."""
        return [host for host, count in self.under_way.items() if host and count]

    @property
    def full(self) -> list[str]:
        """Hosts that get no more messages now."""
        return [host for host in {*self.opened, *self.under_way} if host and not self.room(host)]
