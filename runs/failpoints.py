"""Named places between two commits where the fault suite makes a real process die, freeze, hang or lose its session.

`WAKEFUL_FAILPOINTS="after_claim=kill,before_commit=stop*1"` arms points for the life of a process: `@N` begins with
its N-th hit, `*N` ends after N hits. `WAKEFUL_FAILPOINTS=/folder` lets a suite arm points while processes run: the file
`/folder/after_claim` holds the action; the first process that gets there takes it by renaming the file to `after_claim.hit`,
which then holds its pid. So the action happens once, in one process with that folder.

- `kill`, `stop`: SIGKILL or SIGSTOP to itself
- `killall`, `stopall`: SIGKILL or SIGSTOP to its process group, a worker's parent and children
- `cut`: its database session is ended
- `error`: an exception
- `sleep:SECONDS`
- `wait`: it waits until `after_claim.hit` is gone

A point that is not armed costs a dictionary lookup.
"""

import os
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import connection

ACTIONS = frozenset({"kill", "stop", "killall", "stopall", "cut", "error", "sleep", "wait"})
WAIT_AT_MOST = 60.0  # seconds


class FailpointError(Exception):
    pass


@dataclass
class Armed:
    action: str
    first: int = 1
    left: float = float("inf")


def parse(text: str) -> dict[str, Armed]:
    """Name → what to do there; ValueError names the malformed entry."""
    armed = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, equals, said = entry.partition("=")
        said, star, times = said.partition("*")
        action, at, first = said.partition("@")
        if not equals or action.split(":")[0] not in ACTIONS:
            raise ValueError(
                f"failpoint {entry!r}: use name={'|'.join(sorted(ACTIONS))}, sleep:SECONDS, with @N and *N to limit it"
            )
        armed[name] = Armed(action, int(first) if at else 1, int(times) if star else float("inf"))
    return armed


_armed: dict[str, Armed] | None = None
_folder: Path | None = None
_hits: Counter[str] = Counter()


def failpoint(name: str) -> None:
    armed, folder = _read()
    if folder is not None:
        _look_into(folder, name)
    elif name in armed:
        _hit(name, armed[name])


def is_armed(name: str) -> bool:
    """Might something happen there? For a moment between two statements that are sent together unless a suite wants it."""
    armed, folder = _read()
    return name in armed if folder is None else (folder / name).exists()


def _read() -> tuple[dict[str, Armed], Path | None]:
    global _armed, _folder
    if _armed is None:
        text = settings.WAKEFUL_FAILPOINTS
        _folder = Path(text) if text.startswith("/") else None
        _armed = {} if _folder else parse(text)
    return _armed, _folder


def _look_into(folder: Path, name: str) -> None:
    file = folder / name
    try:
        armed_at = file.stat().st_mtime_ns  # armed again, its hits count from 0
        [armed] = parse(f"{name}={file.read_text()}").values()
        _hits[f"{name} {armed_at}"] += 1
        if _hits[f"{name} {armed_at}"] < armed.first:
            return
        file.rename(hit := folder / f"{name}.hit")
        hit.write_text(str(os.getpid()))
    except FileNotFoundError:
        return  # not armed, or another process took it
    act(name, armed.action, folder)


def _hit(name: str, armed: Armed) -> None:
    _hits[name] += 1
    if _hits[name] >= armed.first and armed.left > 0:
        armed.left -= 1
        act(name, armed.action, Path())


def act(name: str, action: str, folder: Path) -> None:
    action, _, argument = action.partition(":")
    match action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            # A signal to the whole process would let this thread go on for a moment, and commit.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        case "killall":
            os.killpg(0, signal.SIGKILL)
        case "stopall":
            os.killpg(0, signal.SIGSTOP)
        case "cut":
            cut_session()
        case "sleep":
            time.sleep(float(argument))
        case "wait":
            wait_for(folder / f"{name}.hit")
        case _:
            raise FailpointError(name)


def cut_session() -> None:
    """End this thread's database session from another one, as a failing network or an administrator would."""
    if connection.connection is None:
        return
    pid = connection.connection.info.backend_pid
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s::int, 5000)", [pid])
    finally:
        other.close()


def wait_for(file: Path) -> None:
    """Wait until the file is gone."""
    give_up_at = time.monotonic() + WAIT_AT_MOST
    while file.exists() and time.monotonic() < give_up_at:
        time.sleep(0.01)
