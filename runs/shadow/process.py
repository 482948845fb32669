"""A shadow run in its own process, because it interrupts its body by signal, may block the network for the whole process and may have
to be killed."""

import json
import subprocess
import sys
from collections.abc import Sequence
from threading import BoundedSemaphore
from typing import Any

from django.conf import settings

from runs.exceptions import RunError

PATIENCE = 90.0  # seconds; a shadow run normally ends itself earlier
AT_ONCE = BoundedSemaphore(2)  # per web process; each is a process with the whole project in memory


class NotTried(RunError):
    """The shadow run was not executed; the message gives the reason to the user."""


def report_of(command: Sequence[str], *, given: str = "") -> dict[str, Any]:
    """The report of a command of `manage.py` that executes one shadow run, with `given` on its standard input. Raises NotTried."""
    words = [sys.executable, *settings.MANAGE, *command, "--json"]
    if not AT_ONCE.acquire(blocking=False):
        raise NotTried("Two shadow runs are in progress. Try again when one has ended, within a minute.")
    try:
        done = subprocess.run(words, input=given, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise NotTried(
            f"The shadow run did not end within {PATIENCE:g} s and was killed. Its work was rolled back."
        ) from None
    finally:
        AT_ONCE.release()
    if done.returncode:
        raise NotTried(
            _last_words(done.stderr) or f"The shadow run ended with exit code {done.returncode} and no message."
        )
    [tried] = json.loads(done.stdout)
    return dict(tried)


def _last_words(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("CommandError: ") if lines else ""
