"""The end of a process whose shadow run cannot be interrupted."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from threading import Timer

from runs.management.command import BaseCommand

GRACE = 4.0  # seconds after the limit of a shadow run


@contextmanager
def ending_with_the_process(command: BaseCommand, limit: float) -> Iterator[None]:
    """Limit a shadow run inside the block to this many seconds; if its body cannot be interrupted, the process of the
    command ends itself. The agent's own output is kept out of the report.
    """
    last_resort = Timer(limit + GRACE, _give_up, [limit + GRACE])
    last_resort.daemon = True
    if getattr(command, "_called_from_command_line", False):
        last_resort.start()
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        last_resort.cancel()


def _give_up(seconds: float) -> None:
    os.write(
        2, f"CommandError: It did not stop within {seconds:g} s and was ended. Its work was rolled back.\n".encode()
    )
    os._exit(1)
