"""Hints of the operating system that files have changed. They make a look sooner; what they miss, the next scan finds."""

import os
import time
from typing import Any

import structlog

log = structlog.get_logger(__name__)

STEP = 250  # milliseconds between two looks for hints


class Hints:
    def __init__(self, directory: bytes, *, is_deep: bool) -> None:
        self.watcher = _watcher(directory, is_deep)

    def wait(self, seconds: float) -> set[bytes]:
        """The paths of which there are hints, as soon as there are some."""
        if self.watcher is None:
            time.sleep(seconds)
            return set()
        milliseconds = max(int(seconds * 1000), 1)
        step = min(STEP, milliseconds)
        found = self.watcher.watch(step, step, milliseconds, None)
        return {os.fsencode(path) for _, path in found} if isinstance(found, set) else set()

    def close(self) -> None:
        if self.watcher is not None:
            self.watcher.close()


def _watcher(directory: bytes, is_deep: bool) -> Any:
    try:
        from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError
    except ImportError:
        return None
    try:
        return RustNotify([directory.decode()], False, False, 0, is_deep, True)
    except (OSError, WatchfilesRustInternalError, UnicodeError) as error:
        # Such as more folders than fs.inotify.max_user_watches.
        log.warning("source.no_hints", directory=os.fsdecode(directory), error=str(error))
        return None
