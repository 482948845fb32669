"""When a process that makes load does what."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench.ground.names import READY


def await_word() -> None:
    """Report that everything is prepared, and wait for the line that lets it go on."""
    print(READY, flush=True)
    sys.stdin.readline()


def paced(count: int, rate: float) -> Iterator[int]:
    """Numbers from 0, `rate` of them a second after a word from outside; a late one does not make the next ones late."""
    await_word()
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        yield number


def serve(commands: Mapping[str, Callable[..., Any]]) -> None:
    """Carry out each line from standard input, a JSON list of a command and its arguments, and answer with a line."""
    print(READY, flush=True)
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        print(json.dumps(commands[command](*arguments)), flush=True)
