"""The pause between tries of what has failed."""

from datetime import timedelta
from typing import TypeVar

Pause = TypeVar("Pause", float, timedelta)
MOST_DOUBLINGS = 30  # no `first` is so short that it would not have reached its `longest`


def backoff(first: Pause, longest: Pause, failures: int) -> Pause:
    """The pause after so many failures in a row: `first` after one, twice as long after each further one, at most `longest`."""
    doublings: int = 1 << min(max(failures - 1, 0), MOST_DOUBLINGS)
    return min(first * doublings, longest)
