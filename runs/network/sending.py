"""Messages under way, each in a thread, and which hosts get no further one just now.

What notifications (`runs.notifications.deliver`) and subscriptions (`triggers.outbound.deliver`) promise alike:

1. A delivery is claimed (`sending`, with a lease), then sent by a thread that knows no database, then recorded by a compare-and-set
   on its claim. If the process dies in between, the lease ends without an outcome: each of the two defines what that means.
2. No host delays the messages to another one. A host that is away gets one message at a time (`breakers`). Hosts that fail or
   answer slowly occupy at most half of the threads together, and the last threads are kept for hosts that have nothing under way.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

import structlog

from runs.db.errors import is_own
from runs.network.breakers import Breakers

log = structlog.get_logger(__name__)

J = TypeVar("J")
R = TypeVar("R")

LEASE = timedelta(minutes=3)  # of a claim; far longer than any message takes
NO_WORD = "the process that sent it did not say what became of it"
BLOCKED = 1.0  # seconds between two looks at what is due and cannot be sent yet
SLOW = 2.0  # seconds of an answer


def rest(due_in: float | None) -> float:
    """Seconds until the next look at what is due in so many seconds, or never."""
    if due_in is None:
        return float("inf")
    # What is due and cannot be sent waits for a host, a thread or another process.
    return due_in if due_in > 0 else BLOCKED


@dataclass(frozen=True, kw_only=True)
class Result(Generic[J, R]):
    job: J
    outcome: R
    host: str = ""
    seconds: float = 0.0


class Sending(Generic[J, R]):
    """Call `start` and `record_each` from one thread. `judge` reports a result to the breakers; `wake` is called from any thread
    when one is there."""

    def __init__(
        self,
        name: str,
        *,
        threads: int,
        breakers: Breakers,
        judge: Callable[[Result[J, R]], None],
        wake: Callable[[], None],
    ) -> None:
        self.name, self.threads, self.breakers = name, threads, breakers
        self.judge, self.wake = judge, wake
        self.reserved = max(threads // 4, 1)
        self.results: SimpleQueue[Result[J, R]] = SimpleQueue()
        self.under_way = 0
        self.slow: set[str] = set()

    @property
    def has_room(self) -> bool:
        return self.under_way < self.threads

    @property
    def refusing(self) -> list[str]:
        """Hosts that get no more messages now."""
        hosts = set(self.breakers.full)
        if self.threads - self.under_way <= self.reserved:
            hosts |= set(self.breakers.busy)
        suspect = self.slow | set(self.breakers.opened)
        if sum(self.breakers.under_way[host] for host in suspect) >= self.threads // 2:
            hosts |= suspect
        return sorted(hosts)

    def start(self, job: J, host: str, send: Callable[[J], R]) -> None:
        """`send` raises nothing."""

        def run() -> None:
            began = time.monotonic()
            outcome = send(job)
            self.results.put(Result(job=job, host=host, outcome=outcome, seconds=time.monotonic() - began))
            self.wake()

        threading.Thread(target=run, name=f"wakeful-{self.name}", daemon=True).start()
        # Only now: a machine that has no room for a thread must not use up the room for messages.
        self.under_way += 1
        self.breakers.began(host)

    def record_each(self, record: Callable[[Result[J, R]], object]) -> int:
        """Call `record` with each result; returns how many there were. A result that the database is too far away for is kept."""
        count = 0
        while True:
            try:
                result = self.results.get_nowait()
            except Empty:
                return count
            try:
                record(result)
            except Exception as error:
                if not is_own(error):
                    self.results.put(result)  # for the next look, if its lease lasts that long
                    raise
                # Not the database's state but this outcome: it must not stop the others. Its lease decides.
                log.exception("sending.not_recorded", job=str(result.job))
            count += 1
            self._ended(result)

    def _ended(self, result: Result[J, R]) -> None:
        self.under_way -= 1
        self.breakers.ended(result.host)
        self.judge(result)
        if result.seconds >= SLOW:
            self.slow.add(result.host)
        else:
            self.slow.discard(result.host)
