"""Hints of the operating system (inotify) that files have changed. They make a look sooner; what they miss, the next scan finds.

The system is called without a library: watchfiles follows links out of the directory, and no thread of the process runs while it
looks for folders to watch, also if that takes minutes."""

import ctypes
import os
import select
import struct
import sys
import time
from typing import NamedTuple, Self

import structlog

log = structlog.get_logger(__name__)

MOST_FOLDERS = 5_000  # of one source; the others are left to scans
EVENTS, READS = 2**16, 64  # bytes of a read of the queue, and reads at once
TOGETHER = 0.05  # seconds in which further changes join the first one

ATTRIB, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x4, 0x8, 0x40, 0x80, 0x100, 0x200
OVERFLOW, IGNORED, ONLY_FOLDERS, IS_FOLDER = 0x4000, 0x8000, 0x1000000, 0x40000000
CHANGES = ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE
EVENT = struct.Struct("iIII")  # watch, changes, cookie, length of the name


class Hint(NamedTuple):
    """A path below the directory."""

    relative: bytes
    is_folder: bool


class Hints:
    """Watches of folders; `watch` adds one when its folder is looked through."""

    def __init__(self, libc: ctypes.CDLL, fd: int) -> None:
        self.libc, self.fd = libc, fd
        self.folders: dict[int, bytes] = {}
        self.is_full = False
        self.queue = select.poll()
        self.queue.register(fd, select.POLLIN)

    @classmethod
    def begin(cls) -> Self | None:
        """None: this system has none, or no further ones."""
        if not sys.platform.startswith("linux"):
            return None
        libc = ctypes.CDLL(None, use_errno=True)
        fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if fd < 0:  # such as more than fs.inotify.max_user_instances
            log.warning("source.no_hints", error=os.strerror(ctypes.get_errno()))
            return None
        return cls(libc, fd)

    def watch(self, folder: bytes, fd: int) -> None:
        """Watch an open folder: it is the one that is looked through, wherever its path leads meanwhile."""
        if self.is_full:
            return
        watch = self.libc.inotify_add_watch(self.fd, b"/proc/self/fd/%d" % fd, CHANGES | ONLY_FOLDERS)
        if watch >= 0:
            self.folders[watch] = folder
        if watch < 0 or len(self.folders) >= MOST_FOLDERS:
            self.is_full = True
            log.warning("source.hints_full", folders=len(self.folders), error=os.strerror(ctypes.get_errno()))

    def wait(self, seconds: float) -> set[Hint] | None:
        """Wait for changes and return them; None: more than the system remembers."""
        if not self.queue.poll(seconds * 1000):
            return set()
        time.sleep(min(seconds, TOGETHER))
        found: set[Hint] = set()
        for _ in range(READS):
            try:
                events = os.read(self.fd, EVENTS)
            except BlockingIOError:
                break
            if not self._take(events, found):
                return None
        return found

    def close(self) -> None:
        os.close(self.fd)

    def _take(self, events: bytes, found: set[Hint]) -> bool:
        place = 0
        while place < len(events):
            watch, changes, _, length = EVENT.unpack_from(events, place)
            place += EVENT.size + length
            if changes & OVERFLOW:
                return False
            if changes & IGNORED:
                self.folders.pop(watch, None)
            elif name := events[place - length : place].rstrip(b"\0"):
                folder = self.folders.get(watch, b"")
                found.add(Hint(folder + b"/" + name if folder else name, bool(changes & IS_FOLDER)))
        return True
