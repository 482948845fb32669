"""A wall clock that a test moves, for all processes that are given its environment, servers included.

    clock = MovedClock(folder)
    stack.start("worker", env=clock.env)
    clock.move(timedelta(hours=1))

It runs at its usual speed between two moves. The monotonic clock is not moved: pauses of a process take as long as they take.
"""

import mmap
import os
import shutil
import struct
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

SOURCE = Path(__file__).with_name("moved_clock.c")
MICROSECOND = timedelta(microseconds=1)


def can_move_clocks() -> bool:
    return sys.platform == "linux" and shutil.which("cc") is not None


class MovedClock:
    def __init__(self, folder: Path) -> None:
        """`folder`: every process that is given this clock must be able to read it."""
        self.shim, self.file = folder / "moved_clock.so", folder / "moved_clock"
        if not self.shim.exists():
            subprocess.run(["cc", "-shared", "-fPIC", "-o", self.shim, SOURCE, "-ldl"], check=True)
            self.shim.chmod(0o755)
        self.file.touch(0o644)
        os.truncate(self.file, 8)
        with self.file.open("r+b") as file:
            self.off = mmap.mmap(file.fileno(), 8)

    @property
    def env(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.shim), "MOVED_CLOCK": str(self.file)}

    @property
    def now(self) -> datetime:
        """What those processes take for the time."""
        off: int = struct.unpack("=q", self.off[:])[0]
        return datetime.now(UTC) + off * MICROSECOND

    def move_to(self, at: datetime) -> None:
        self.off[:] = struct.pack("=q", (at - datetime.now(UTC)) // MICROSECOND)

    def move(self, by: timedelta) -> None:
        self.move_to(self.now + by)
