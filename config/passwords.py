"""Hashing passwords takes a core for a tenth of a second or more, so one process does it for a few at a time only."""

from threading import BoundedSemaphore

from django.contrib.auth.hashers import PBKDF2PasswordHasher

AT_ONCE = BoundedSemaphore(2)
# Of the threads that answer requests only so many hash or wait for that: the others go on with webhooks and health.
ADMITTED = BoundedSemaphore(4)


class Busy(Exception):
    """Too many passwords are being hashed just now: try again after so many seconds."""

    seconds = 2.0


class BoundedHasher(PBKDF2PasswordHasher):
    """Django's usual hasher, for a few at a time; raises Busy. The hashes are the same."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        if not ADMITTED.acquire(blocking=False):
            raise Busy
        try:
            with AT_ONCE:
                return super().encode(password, salt, iterations)
        finally:
            ADMITTED.release()
