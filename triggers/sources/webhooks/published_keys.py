"""Keys that senders publish at an address, such as certificates and key sets. Forged deliveries can name any number of them: few are
kept, and few are fetched, one at a time."""

import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar

from triggers.sources.http.answers import Unavailable
from triggers.sources.webhooks.proof import Rejected

K = TypeVar("K")
SECONDS = 5.0  # for a request; SNS waits 15 s for our answer, Pub/Sub 10 s or more
PATIENCE = (
    1.0  # seconds into a request after which no delivery waits for it: each of them takes a place of the web process
)
MOST_BYTES = 65_536


def fetched(address: str, whose: str) -> tuple[int, bytes]:
    """Status and body of the answer. Unavailable: there is none, so that the sender tries again."""
    # Here and not above: the clients of HTTP take a moment to load, in every process.
    from runs.network.fetching import Limits, NotFetched, Request, fetch

    try:
        answer = fetch(Request(url=address), Limits(seconds=SECONDS, bytes=MOST_BYTES, redirects=0))
    except NotFetched as error:
        raise Unavailable(why=f"{whose} cannot be reached: {error}") from None
    return answer.status, answer.body


class PublishedKeys(ABC, Generic[K]):
    """Keys by address. `fetch` raises Rejected or Unavailable."""

    MOST_KEPT = 16
    MOST_FETCHED = 10  # a minute
    KEPT_FOR = 86_400.0  # seconds
    STAYS_FOR = 60.0  # seconds within which keys are not fetched again, whatever they lack
    whose: ClassVar[str]  # in errors, after “keys of”: such as SNS

    def __init__(self, fetch: Callable[[str], bytes]) -> None:
        self._fetch = fetch
        self._one_at_a_time = threading.Lock()
        self._begun_at: float | None = None  # the current request
        self._kept: OrderedDict[str, tuple[float, K]] = OrderedDict()
        self._fetched_at: deque[float] = deque(maxlen=self.MOST_FETCHED)

    @abstractmethod
    def read(self, content: bytes) -> K:
        """The keys in an answer. ValueError: there are none."""

    def get(self, address: str, *, holds: Callable[[K], bool] = lambda _: True) -> K:
        """The keys; those that are kept, unless they do not hold what a delivery needs and may be old. Rejected: there are none;
        Unavailable: they cannot be fetched now, so that the sender tries again."""
        if kept := self._find(address, holds):
            return kept
        begun_at = self._begun_at
        left = PATIENCE if begun_at is None else begun_at + PATIENCE - time.monotonic()
        if not self._one_at_a_time.acquire(timeout=max(left, 0)):
            raise Unavailable(why=f"keys of {self.whose} are being fetched")
        try:
            return self._find(address, holds) or self._fetched(address)
        finally:
            self._one_at_a_time.release()

    def _find(self, address: str, holds: Callable[[K], bool]) -> K | None:
        at, keys = self._kept.get(address, (0.0, None))
        age = time.monotonic() - at
        return keys if keys is not None and age < self.KEPT_FOR and (age < self.STAYS_FOR or holds(keys)) else None

    def _fetched(self, address: str) -> K:
        now = time.monotonic()
        if len(self._fetched_at) == self.MOST_FETCHED and now - self._fetched_at[0] < 60:
            raise Unavailable(why=f"too many keys of {self.whose} were fetched within a minute")
        self._fetched_at.append(now)
        self._begun_at = now
        try:
            keys = self.read(self._fetch(address))
        except ValueError:
            raise Rejected(f"there are no keys of {self.whose} at their address") from None
        finally:
            self._begun_at = None
        self._kept.pop(address, None)
        self._kept[address] = (now, keys)
        while len(self._kept) > self.MOST_KEPT:
            self._kept.popitem(last=False)
        return keys
