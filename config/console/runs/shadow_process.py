"""A shadow run in its own process, because it interrupts its body by signal, blocks the network for the whole process and
may have to be killed."""

import json
import subprocess
import sys
from threading import BoundedSemaphore
from typing import Any
from uuid import UUID

from django.conf import settings

from runs.exceptions import RunError

PATIENCE = 60.0  # seconds; a shadow run normally ends itself earlier
AT_ONCE = BoundedSemaphore(2)  # per web process; each is a process with the whole project in memory


class NotTried(RunError):
    """The shadow run was not executed; the message gives the reason to the user."""


def try_in_a_process(event_id: UUID, *, trigger: str, run_id: UUID | None, by: str) -> dict[str, Any]:
    """The report of `manage.py shadow` for the event and the trigger. Raises NotTried."""
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "shadow", str(event_id), "--trigger", trigger]
    command += ["--json", "--by", by, *(["--run", str(run_id)] if run_id else [])]
    if not AT_ONCE.acquire(blocking=False):
        raise NotTried("Two shadow runs are in progress. Try again when one has ended, within half a minute.")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
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
