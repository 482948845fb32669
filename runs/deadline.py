import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from runs.exceptions import DeadlineExceeded


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise DeadlineExceeded in this (the main) thread once `seconds` have passed; the parent's hard stop comes later."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise DeadlineExceeded(f"the body took longer than its timeout of {seconds:g} s")

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
