"""The endpoints that this process has read, so that a delivery costs no query for its source. One may be out of date: it decides
nothing but which event is recorded if the source is still the same, which the insert checks (`triggers.accept.accept_verified`)."""

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

E = TypeVar("E")

# Sources whose deliveries cost no query, of a few kB each. Strangers add none: only what exists is kept. Decrypted secrets stay in
# memory anyway, to be known wherever text is redacted (`agents.kernel.redaction.know`).
MOST = 2_000


class Kept(Generic[E]):
    """The values that were used last, by slug."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._values: OrderedDict[str, E] = OrderedDict()
        self._lock = Lock()

    def get(self, slug: str) -> E | None:
        with self._lock:
            if slug in self._values:
                self._values.move_to_end(slug)
            return self._values.get(slug)

    def keep(self, slug: str, value: E) -> None:
        with self._lock:
            self._values[slug] = value
            self._values.move_to_end(slug)
            if len(self._values) > self._most:
                self._values.popitem(last=False)

    def replace(self, slug: str, known: E, value: E) -> None:
        """Keep this one in the place of the known one, unless another thread has kept a newer one."""
        with self._lock:
            if self._values.get(slug) is known:
                self._values[slug] = value

    def drop(self, slug: str) -> None:
        with self._lock:
            self._values.pop(slug, None)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
