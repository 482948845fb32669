"""Hosts or endpoints that are away: each failure makes the next pause longer, and one message at a time asks whether it is back."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from agents.kernel.backoff import backoff

FIRST_PAUSE = 1.0  # seconds
LONGEST_PAUSE = 60.0
MOST_AT_ONCE = 3  # messages to one host


@dataclass
class Breakers:
    """Of the hosts that this process sends to; the empty host is never away."""

    clock: Callable[[], float] = time.monotonic
    most: int = MOST_AT_ONCE
    failures: Counter[str] = field(default_factory=Counter)
    retry_at: dict[str, float] = field(default_factory=dict)
    under_way: Counter[str] = field(default_factory=Counter)

    def began(self, host: str) -> None:
        self.under_way[host] += 1

    def ended(self, host: str) -> None:
        self.under_way[host] -= 1

    def succeeded(self, host: str) -> None:
        self.failures.pop(host, None)
        self.retry_at.pop(host, None)

    def failed(self, host: str, pause: float | None = None) -> None:
        """The host did not take a message; `pause`: it has said how long to wait."""
        if not host:
            return
        self.failures[host] += 1
        usual = backoff(FIRST_PAUSE, LONGEST_PAUSE, self.failures[host])
        self.retry_at[host] = self.clock() + max(usual, pause or 0.0)

    def room(self, host: str) -> int:
        """How many more messages may be sent to it now."""
        if not host:
            return self.most
        most = 1 if self.failures[host] else self.most
        return 0 if self.is_away(host) else max(most - self.under_way[host], 0)

    def is_away(self, host: str) -> bool:
        return self.retry_at.get(host, 0.0) > self.clock()

    @property
    def away(self) -> list[str]:
        return [host for host in self.retry_at if self.is_away(host)]

    @property
    def busy(self) -> list[str]:
        """Hosts that a message is on its way to."""
        return [host for host, count in self.under_way.items() if host and count]

    @property
    def full(self) -> list[str]:
        """Hosts that get no more messages now."""
        return [host for host in {*self.retry_at, *self.under_way} if host and not self.room(host)]
