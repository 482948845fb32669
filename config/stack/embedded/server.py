"""The base of both servers: a folder, a port, a password, a child process and its log."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from config.stack import children
from config.stack.embedded.errors import EmbeddedError

HOST = "127.0.0.1"


class Server:
    """One server process on its own data. `start`, `stop` and `kill` may be called again and again."""

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]
    patience: ClassVar[float] = 60.0  # seconds to become ready; crash recovery may need most of it

    def __init__(self, place: Path, *, say: Callable[[str], None]) -> None:
        self.place = place
        self.say = say
        self.process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.password = ""

    @property
    def url(self) -> str:
        raise NotImplementedError

    @property
    def log(self) -> Path:
        return self.place / "log"

    def spawn(self) -> subprocess.Popen[bytes]:
        raise NotImplementedError

    def is_ready(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        """Start the server and return once it answers."""
        self.password = self._remembered("password") or self._remember("password", secrets.token_urlsafe(24))
        for attempt in range(3):
            self.port = self._choose_port()
            self.process = self.spawn()
            if self._became_ready(self.process):
                return
            self.kill()
            if attempt == 2 or "in use" not in self._tail():
                break
            time.sleep(0.5)  # another process took the port first, or a killed server's memory is still held
        raise EmbeddedError(f"{self.name} did not start. The end of {self.log}:\n{self._tail()}")

    def stop(self) -> None:
        """Stop the server cleanly; what was committed is on disk."""
        if not self.process:
            return
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.say(f"{self.name} did not stop within 30 s: killed. Its next start recovers.")
            self.kill()
        self.process = None

    def kill(self) -> None:
        """`kill -9`, the server and all its processes: a crash."""
        if not self.process:
            return
        for pid in [self.process.pid, *children.children_of(self.process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

    def stop_orphan(self, pid_file: Path) -> None:
        """Stop a server that outlived the stack that started it; drop a pid file whose process is gone or another."""
        try:
            pid = int(pid_file.read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return
        if not children.command_of(pid).startswith(self.command_names):
            # After a reboot the number may be another process's: the server would refuse to start because of it.
            pid_file.unlink(missing_ok=True)
            return
        self.say(f"An earlier {self.name} (process {pid}) was left running on {self.place}: stopping it.")
        os.kill(pid, self.stop_signal)
        deadline = time.monotonic() + 30
        while children.command_of(pid):
            if time.monotonic() > deadline:
                raise EmbeddedError(f"It did not stop. End it with `kill -9 {pid}` and start again.")
            time.sleep(0.05)

    command_names: ClassVar[tuple[str, ...]]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _became_ready(self, process: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline and process.poll() is None:
            if self.is_ready():
                return True
            time.sleep(0.02)
        return False

    def _choose_port(self) -> int:
        """The port of the last start, so that URLs stay valid; another one if it is taken."""
        before = int(self._remembered("port") or 0)
        for port in (before, 0):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError:
                    self.say(f"Port {port} of {self.name} is taken now: choosing another.")
                    continue
                chosen: int = probe.getsockname()[1]
                break
        self._remember("port", str(chosen))
        return chosen

    def _remembered(self, what: str) -> str:
        try:
            return (self.place / what).read_text().strip()
        except FileNotFoundError:
            return ""

    def _remember(self, what: str, value: str) -> str:
        path = self.place / what
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(value + "\n")
        return value

    def _tail(self) -> str:
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-12:])
        except OSError:
            return "(empty)"
