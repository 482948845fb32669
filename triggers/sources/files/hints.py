"""Hints of the operating system that files have changed. They make a look sooner; what they miss, the next scan finds."""

import os
import threading
import time
from typing import Any

import structlog

log = structlog.get_logger(__name__)

STEP = 250  # milliseconds between two looks for hints


class Hints:
    def __init__(self, directory: bytes, *, is_deep: bool) -> None:
        self.directory = directory
        self.is_deep = is_deep
        self.watcher: Any = None
        self.is_closed = threading.Event()
        # A watch of each folder: that takes long on a slow file system, and scans need not wait for it.
        self.beginning = threading.Thread(target=self._begin, name="hints", daemon=True)
        self.beginning.start()

    def wait(self, seconds: float) -> set[bytes]:
        """The paths with hints, as soon as there are some."""
        watcher = self.watcher
        if watcher is None:
            time.sleep(seconds)
            return set()
        milliseconds = max(int(seconds * 1000), 1)
        step = min(STEP, milliseconds)
        found = watcher.watch(step, step, milliseconds, None)
        return {os.fsencode(path) for _, path in found} if isinstance(found, set) else set()

    def close(self) -> None:
        self.is_closed.set()
        if self.watcher is not None:
            self.watcher.close()

    def _begin(self) -> None:
        try:
            from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError
        except ImportError:
            return
        try:
            watcher = RustNotify([self.directory.decode()], False, False, 0, self.is_deep, True)
        except (OSError, WatchfilesRustInternalError, UnicodeError) as error:
            # Such as more folders than fs.inotify.max_user_watches.
            log.warning("source.no_hints", directory=os.fsdecode(self.directory), error=str(error))
            return
        self.watcher = watcher
        if self.is_closed.is_set():
            watcher.close()
