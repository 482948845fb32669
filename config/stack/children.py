"""Child processes that do not outlive this one."""

import contextlib
import ctypes
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Protocol

# Loaded before any fork: nothing may be imported between fork and exec.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def spawn(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    output: IO[bytes] | int,
    cwd: Path | None = None,
    account: pwd.struct_passwd | None = None,
    farewell: signal.Signals = signal.SIGTERM,
) -> subprocess.Popen[bytes]:
    """Start a child in its own session. On Linux it gets the signal `farewell` when the calling *thread* ends for any reason."""
    return subprocess.Popen(
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        # Its own session: a Ctrl-C only reaches the supervisor, which stops its children in order.
        start_new_session=True,
        user=account.pw_uid if account else None,
        group=account.pw_gid if account else None,
        extra_groups=[] if account else None,
        preexec_fn=_follow_parent(farewell),
    )


class HasPid(Protocol):
    pid: int


def kill_group(process: HasPid, sent: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to a child and the processes it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, sent)


def command_of(pid: int) -> str:
    """The name of a running process; empty if there is none."""
    return _stat(pid)[0]


def identity_of(pid: int) -> str:
    """The start time of a process, which distinguishes it from a later one with the same pid; empty if there is none."""
    return _stat(pid)[1]


def _stat(pid: int) -> tuple[str, str]:
    if sys.platform == "linux":
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return "", ""
        name, rest = stat.partition("(")[2].rsplit(")", 1)
        fields = rest.split()  # from the third of proc(5) on: state first, start time as the 22nd
        return ("", "") if fields[0] in "ZX" else (name, fields[19])
    found = subprocess.run(["ps", "-o", "lstart=,comm=", "-p", str(pid)], capture_output=True, text=True, check=False)
    *started, command = found.stdout.split(maxsplit=5) or [""]
    return Path(command.strip()).name, " ".join(started)


def children_of(pid: int) -> list[int]:
    """The direct children of a process (Linux only)."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def follow(parent: int, farewell: signal.Signals) -> None:
    """Let this process get a signal when its parent ends; end it now if the parent is gone already."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(farewell))
    if os.getppid() != parent:  # it died between fork and prctl
        os._exit(1)


def adopt(is_adopting: bool) -> None:
    """Whether descendants whose parent ends become children of this process (Linux only)."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, int(is_adopting), 0, 0, 0)


def _follow_parent(farewell: signal.Signals) -> Callable[[], None] | None:
    return partial(follow, os.getpid(), farewell) if _LIBC is not None else None
