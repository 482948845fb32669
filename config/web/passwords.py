"""Hashing passwords takes a core for a tenth of a second or more, so one process does it for a few at a time only.

A browser that has logged in before has a lane of its own: a flood of logins from elsewhere does not keep its user out.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import BoundedSemaphore

from django.contrib.auth.hashers import PBKDF2PasswordHasher


class Busy(Exception):
    """Too many passwords are being hashed just now: try again after so many seconds."""

    seconds = 2.0


@dataclass(frozen=True)
class Lane:
    """One password is hashed at a time. Of the threads that answer requests only so many hash here or wait for that: the
    others go on with webhooks and health."""

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
    """Django's usual hasher, for a few at a time; raises Busy. The hashes are the same."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        with LANE.get().place():
            return super().encode(password, salt, iterations)
