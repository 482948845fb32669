"""Limit concurrent password hashing, because one hash takes a core for a tenth of a second or more.

Browsers that have logged in before have their own lane, so that a flood of other logins does not block their users.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import BoundedSemaphore

from django.contrib.auth.hashers import PBKDF2PasswordHasher


class Busy(Exception):
    """Too many passwords are being hashed: try again after `seconds`."""

    seconds = 2.0


@dataclass(frozen=True)
class Lane:
    """Hashes one password at a time. Admits a limited number of threads, so that the others serve webhooks and health
    checks."""

    admitted: BoundedSemaphore
    hashing: BoundedSemaphore

    @classmethod
    def of(cls, admitted: int) -> "Lane":
        return cls(BoundedSemaphore(admitted), BoundedSemaphore(1))

    @contextmanager
    def place(self) -> Iterator[None]:
        if not self.admitted.acquire(blocking=False):
            raise Busy
        try:
            with self.hashing:
                yield
        finally:
            self.admitted.release()


STRANGERS, KNOWN = Lane.of(3), Lane.of(2)
LANE = ContextVar("LANE", default=STRANGERS)


class BoundedHasher(PBKDF2PasswordHasher):
    """Django's default hasher with limited concurrency; raises Busy. The hashes are the same."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        with LANE.get().place():
            return super().encode(password, salt, iterations)
