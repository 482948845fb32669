"""When a process that makes load does what."""

import sys
import time
from collections.abc import Iterator

from bench.names import READY


def await_word() -> None:
    """Say that everything is prepared, and wait to be told to go on."""
    print(READY, flush=True)
    sys.stdin.readline()


def paced(count: int, rate: float) -> Iterator[int]:
    """Numbers from 0, `rate` of them a second after a word from outside; a late one does not make the next ones late."""
    await_word()
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        yield number
