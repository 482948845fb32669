"""Named places between two commits where the fault suite makes a real process die, freeze or fail.

`WAKEFUL_FAILPOINTS="after_claim=kill,before_finish=stop*1"`: actions are `kill` (SIGKILL to itself), `stop` (SIGSTOP to
itself), `error` (an exception) and `sleep:SECONDS`; `*N` limits it to the first N hits of a process. Off, it costs a
dictionary look-up.
"""

import os
import signal
import time
from dataclasses import dataclass

from django.conf import settings


class FailpointError(Exception):
    pass


@dataclass
class Armed:
    action: str
    left: float = float("inf")


def parse(text: str) -> dict[str, Armed]:
    """Name → what to do there; ValueError names the malformed entry."""
    armed = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, equals, action = entry.partition("=")
        action, star, times = action.partition("*")
        if not equals or action.split(":")[0] not in ("kill", "stop", "error", "sleep"):
            raise ValueError(f"failpoint {entry!r}: write name=kill|stop|error|sleep:SECONDS, with *N to limit it")
        armed[name] = Armed(action, int(times) if star else float("inf"))
    return armed


_armed: dict[str, Armed] | None = None


def failpoint(name: str) -> None:
    global _armed
    if _armed is None:
        _armed = parse(settings.WAKEFUL_FAILPOINTS)
    if name in _armed:
        _hit(name, _armed[name])


def _hit(name: str, armed: Armed) -> None:
    if armed.left <= 0:
        return
    armed.left -= 1
    action, _, argument = armed.action.partition(":")
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action == "sleep":
        time.sleep(float(argument))
    else:
        raise FailpointError(name)
