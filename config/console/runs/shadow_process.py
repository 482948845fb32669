"""A shadow run in a process of its own: it interrupts its body by signal, refuses the network to all of itself, and may
have to be killed, none of which a web process could stand."""

import json
import subprocess
import sys
from threading import BoundedSemaphore
from typing import Any
from uuid import UUID

from django.conf import settings

from runs.exceptions import RunError

PATIENCE = 60.0  # seconds: a shadow run ends itself before that
AT_ONCE = BoundedSemaphore(2)  # of one web process; each is a process with all of the project in memory


class NotTried(RunError):
    """Nothing could be tried; the message says why, for a person."""


def try_in_a_process(event_id: UUID, *, trigger: str, run_id: UUID | None, by: str) -> dict[str, Any]:
    """What `manage.py shadow` tells of the event and the trigger. Raises NotTried."""
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "shadow", str(event_id), "--trigger", trigger]
    command += ["--json", "--by", by, *(["--run", str(run_id)] if run_id else [])]
    if not AT_ONCE.acquire(blocking=False):
        raise NotTried("Two shadow runs are under way already: try again when they have ended, half a minute at most.")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise NotTried(f"It did not end within {PATIENCE:g} s, and was killed. Nothing of it is left.") from None
    finally:
        AT_ONCE.release()
    if done.returncode:
        raise NotTried(_last_words(done.stderr) or f"It ended with exit code {done.returncode} and said nothing.")
    [tried] = json.loads(done.stdout)
    return dict(tried)


def _last_words(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("CommandError: ") if lines else ""
