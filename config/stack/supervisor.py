"""Runs the processes of a stack: prefixes their output, restarts crashed ones, and stops all of them in order."""

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import IO

from agents.kernel.backoff import backoff
from config.stack import children
from config.stack.nursery import Child

COLORS = ("36", "33", "35", "32", "34", "31")
STABLE = 20.0  # seconds a child must live for its next crash to count as its first
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds between two starts of a child that keeps crashing
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program to run, and the seconds it may take to stop."""

    name: str
    command: Sequence[str]
    patience: float = 15.0


@dataclass(kw_only=True)
class _Child:
    program: Program
    process: Child | None = None
    started_at: float = 0.0
    start_at: float = 0.0
    crashes: int = 0
    buffer: bytes = b""
    stopping: bool = False
    output: IO[bytes] | None = field(default=None, repr=False)


class Supervisor:
    """`run` starts the programs in order, and returns after a signal, when all have stopped."""

    def __init__(
        self, programs: Sequence[Program], *, env: Mapping[str, str], spawn: Callable[..., Child] = children.spawn
    ) -> None:
        self.console = Console([program.name for program in programs])
        self._children = [_Child(program=program) for program in programs]
        self._env = environment_of_programs(env)
        self._spawn = spawn
        self._selector = selectors.DefaultSelector()
        self._signals: list[int] = []
        self._signalled_at = 0.0

    @property
    def pids(self) -> dict[str, int]:
        return {child.program.name: child.process.pid for child in self._children if child.process}

    def run(
        self,
        *,
        each_second: Callable[[], None] = lambda: None,
        on_start: Callable[[Mapping[str, int]], None] = lambda pids: None,
    ) -> None:
        """Supervise until SIGINT, SIGTERM or SIGHUP; calls `on_start` with the pids whenever a child was started."""
        with self._heard_signals():
            try:
                next_second = 0.0
                while not self._signals:
                    if self._start_due():
                        on_start(self.pids)
                    self._listen(timeout=0.2)
                    self._bury()
                    if time.monotonic() >= next_second:
                        each_second()
                        next_second = time.monotonic() + 1
                self._stop_all()
            finally:
                self._kill_all()

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        # A signal to the whole group may arrive twice at once, through make; a later one comes from a person who insists.
        if not self._signals or time.monotonic() - self._signalled_at > 1:
            self._signals.append(number)
            self._signalled_at = time.monotonic()

    def _start_due(self) -> bool:
        started = False
        for child in self._children:
            if child.process is None and time.monotonic() >= child.start_at:
                self._start(child)
                started = True
        return started

    def _start(self, child: _Child) -> None:
        child.process = self._spawn(child.program.command, env=self._env, output=subprocess.PIPE)
        child.started_at = time.monotonic()
        child.output = child.process.stdout
        assert child.output  # noqa: S101  (it is a pipe)
        os.set_blocking(child.output.fileno(), False)
        self._selector.register(child.output, selectors.EVENT_READ, child)

    def _listen(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            if isinstance(key.data, _Child):
                self._read(key.data)
            else:
                key.fileobj.recv(64)  # type: ignore[union-attr]  # only wakes the loop: the signal is already recorded

    def _read(self, child: _Child) -> None:
        if not child.output:
            return
        try:
            said = os.read(child.output.fileno(), 65536)
        except BlockingIOError:
            return
        if not said:
            self._hang_up(child)
            return
        *lines, child.buffer = (child.buffer + said).split(b"\n")
        for line in lines:
            self.console.line(child.program.name, line.decode(errors="replace"))

    def _hang_up(self, child: _Child) -> None:
        if child.output:
            self._selector.unregister(child.output)
            child.output.close()
            child.output = None
        if child.buffer:
            self.console.line(child.program.name, child.buffer.decode(errors="replace"))
            child.buffer = b""

    def _bury(self) -> None:
        """Handle children that ended; restart those that crashed, with a growing pause."""
        for child in self._children:
            if child.process is None or (code := child.process.poll()) is None:
                continue
            self._read(child)
            children.kill_group(child.process)  # processes that it started
            self._hang_up(child)
            child.process = None
            if child.stopping:
                self.console.say(f"{child.program.name} stopped")
                continue
            lived = time.monotonic() - child.started_at
            child.crashes = 1 if lived > STABLE else child.crashes + 1
            pause = backoff(FIRST_PAUSE, LONGEST_PAUSE, child.crashes)
            child.start_at = time.monotonic() + pause
            self.console.say(
                f"{child.program.name} {_ending(code)} after {lived:.0f} s: starting it again in {pause:.0f} s"
            )

    def _stop_all(self) -> None:
        self.console.say(f"{signal.Signals(self._signals[0]).name}: stopping (once more to kill)")
        for child in reversed(self._children):
            if not child.process:
                continue
            child.stopping = True
            child.process.terminate()
            deadline = time.monotonic() + child.program.patience
            while child.process:
                self._listen(timeout=0.1)
                self._bury()
                if child.process and (time.monotonic() > deadline or len(self._signals) > 1):
                    self.console.say(f"{child.program.name} did not stop in time: killing it")
                    children.kill_group(child.process)
                    child.process.wait()

    def _kill_all(self) -> None:
        for child in self._children:
            if child.process:
                children.kill_group(child.process)
                child.process.wait()

    @contextmanager
    def _heard_signals(self) -> Iterator[None]:
        """Record signals in order; a signal or the end of a child wakes the loop."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self._selector.register(theirs, selectors.EVENT_READ)
        before = {number: signal.signal(number, self._note_signal) for number in STOPPING}
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        fd = signal.set_wakeup_fd(ours.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(fd)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.unregister(theirs)
            ours.close()
            theirs.close()


class Console:
    """Output lines prefixed with the name of the process, in colour on a terminal."""

    def __init__(self, names: Sequence[str]) -> None:
        self.colored = _is_colored()
        self._width = max(len(name) for name in (*names, "up"))
        self._colors = dict(zip(names, COLORS * len(names), strict=False))

    def line(self, name: str, text: str) -> None:
        prefix = f"{name:<{self._width}} |"
        if self.colored:
            prefix = f"\033[{self._colors.get(name, '1')}m{prefix}\033[0m"
        print(prefix, text, flush=True)

    def say(self, text: str) -> None:
        """Print lines of the supervisor itself."""
        for line in text.splitlines():
            self.line("up", line)


def environment_of_programs(env: Mapping[str, str]) -> dict[str, str]:
    """Programs say at once what they say, in colours if they are shown on a terminal."""
    return {**env, "PYTHONUNBUFFERED": "1", **({"FORCE_COLOR": "1"} if _is_colored() else {})}


def _is_colored() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _ending(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
