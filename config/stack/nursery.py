"""Starts programs by forking them from one prepared process (`config.stack.prepared`), where the system can do that.

    with Nursery(env) as nursery:
        process = nursery.spawn([sys.executable, "manage.py", "dispatcher"], env=env, output=log)

What `spawn` starts is a child of this process like any other: it is waited for, killed and followed as one, its exit code is real, and it
dies with this process.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from config.place import FOLDER
from config.stack import children

CAN_FORK = sys.platform == "linux"  # elsewhere, what libraries of the system keep does not survive a fork
PATIENCE = 30.0  # seconds for one answer of the prepared process: while it loads modules, or if it hangs
_ROOM = " " * 2000  # for the command lines of programs, which are longer than that of the process that forks them


class Forked:
    """A child of this process that another one has forked: what is used of `subprocess.Popen`."""

    def __init__(self, pid: int, stdout: IO[bytes] | None) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._is_reaping = threading.Lock()

    def poll(self) -> int | None:
        with self._is_reaping:
            if self.returncode is None and (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
                self.returncode = os.waitstatus_to_exitcode(ended[1])
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        with suppress(ProcessLookupError):
            end = os.pidfd_open(self.pid)
            try:
                look = select.poll()
                look.register(end, select.POLLIN)
                look.poll(None if timeout is None else timeout * 1000)
            finally:
                os.close(end)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def send_signal(self, sent: int) -> None:
        if self.poll() is None:  # until then no other process has its pid
            os.kill(self.pid, sent)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Child = subprocess.Popen[bytes] | Forked


class Nursery:
    """One prepared process, which loads its modules with `env`. Without one, or where it fails or hangs, programs are started by
    themselves."""

    _adopting = threading.Lock()  # a process adopts orphans or does not

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        folder: Path = FOLDER,
        can_fork: bool = CAN_FORK,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._folder = folder
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None
        if not can_fork:
            return
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(PATIENCE)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "config.stack.prepared", str(theirs.fileno()), _ROOM],
                env=env,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # the program that is started instead reports what is wrong
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )

    def spawn(self, command: Sequence[str], *, env: Mapping[str, str], output: IO[bytes] | int) -> Child:
        """Start a program as `children.spawn` does, with its output in one file, or in a pipe."""
        if output != subprocess.PIPE:
            place = output if isinstance(output, int) else output.fileno()
            pid = self._fork(command, env, place, place)
            return Forked(pid, None) if pid else children.spawn(command, env=env, output=output, cwd=self._folder)
        reader, writer = os.pipe()
        try:
            pid = self._fork(command, env, writer, writer)
        finally:
            os.close(writer)
        if pid:
            return Forked(pid, os.fdopen(reader, "rb", buffering=0))
        os.close(reader)
        return children.spawn(command, env=env, output=output, cwd=self._folder)

    def start(
        self, command: Sequence[str], *, env: Mapping[str, str], output: IO[bytes], errors: IO[bytes] | int
    ) -> Child:
        """The same for a command that ends by itself, with its errors in a file of their own."""
        place = errors if isinstance(errors, int) else errors.fileno()
        pid = self._fork(command, env, output.fileno(), place)
        if pid:
            return Forked(pid, None)
        return subprocess.Popen(
            command, env=env, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=output, stderr=errors
        )

    def _fork(self, command: Sequence[str], env: Mapping[str, str], output: int, errors: int) -> int:
        """The pid of a new child of this process; 0 if there is none."""
        if self._process is None or not _is_python(command):
            return 0
        request = {
            "command": list(command),
            "environment": dict(env),
            "folder": str(self._folder),
            "parent": os.getpid(),
        }
        with self._adopting:
            pid = self._ask(json.dumps(request).encode(), [output, errors])
        if not pid:
            self._say("The process that forks programs does not answer: they are started by themselves.")
            self.close()
        return pid

    def _ask(self, request: bytes, descriptors: Sequence[int]) -> int:
        with suppress(OSError):
            socket.send_fds(self._socket, [request], descriptors)
            if not self._socket.recv(16):  # nothing: it has ended
                return 0
            children.adopt(True)
            try:
                self._socket.send(b"1")
                with suppress(TimeoutError):
                    return int(self._socket.recv(16) or 0)
                self._socket.shutdown(socket.SHUT_RD)  # a child that comes only now cannot say its pid, and ends
                return int(self._socket.recv(16) or 0)
            finally:
                children.adopt(False)
        return 0

    def close(self) -> None:
        """End the prepared process; what it has forked goes on."""
        if self._process is not None:
            self._socket.close()
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_python(command: Sequence[str]) -> bool:
    """`python -m module …` or `python file.py …`, by this Python."""
    return command[0] == sys.executable and (command[1] == "-m" or command[1].endswith(".py"))
