"""What wakes a caller: a NOTIFY, a request that has ended, or the end of a pause. For one event loop."""

import asyncio
from contextlib import suppress

import psycopg

from runs.calls.nudge import CHANNEL, UNWANTED
from runs.db.listen import Listener


class Bell:
    def __init__(self) -> None:
        self._listener = Listener([CHANNEL])
        self._rung = asyncio.Event()
        self.has_unwanted = False  # by a NOTIFY, until a look sets it back

    def open(self) -> None:
        """Connect. It may take a while: call it in another thread than that of the loop, and `listen` there."""
        self._listener.open()

    def listen(self) -> None:
        if self._listener.connection is not None:
            asyncio.get_running_loop().add_reader(self._listener.connection.fileno(), self._hear)

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, seconds: float, *, together: float = 0.0, needs_notify: bool = True) -> None:
        """Wait until it rings, for so many seconds at most; what rings within `together` after that is part of it.
        OperationalError: no NOTIFY can come, because the session has ended."""
        if needs_notify and self._listener.connection is None:
            raise psycopg.OperationalError("the session that listens has ended")
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
                await asyncio.sleep(together)
        self._rung.clear()

    def close(self) -> None:
        if self._listener.connection is not None:
            with suppress(psycopg.Error):
                asyncio.get_running_loop().remove_reader(self._listener.connection.fileno())
        self._listener.close()

    def _hear(self) -> None:
        self._rung.set()
        try:
            if self._listener.connection is not None:
                notifies = self._listener.connection.notifies(timeout=0)
                self.has_unwanted |= UNWANTED in [notify.payload for notify in notifies]
        except psycopg.Error:
            self.close()
