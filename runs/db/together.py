"""What comes to an event loop at the same time is written together: an asynchronous session writes all that has come meanwhile with one
statement."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import psycopg
import structlog
from django.db import connection

from runs.db.listen import KEEPALIVES
from runs.db.sql import Row

log = structlog.get_logger(__name__)

T = TypeVar("T")
Session = psycopg.AsyncConnection[Row]
RECONNECT = 1.0  # seconds
# Seconds from the beginning of one statement to that of the next: more come meanwhile, and a commit for each would cost more than all else.
# So another session is busy only where a statement takes longer.
PACE = 0.002
# A statement that waits for the lock of another session must not hold up the others for long: its callers go each its own way then. A
# process that freezes keeps no locks for ever.
TIMEOUTS = (
    ("lock_timeout", "200ms"),
    ("idle_in_transaction_session_timeout", "20s"),
    ("tcp_user_timeout", "20s"),
    *KEEPALIVES.items(),
)


class Together(Generic[T]):
    """`write` executes one statement for at most `most` of them, and returns for each whether it was written; `after` is awaited after
    that. Used only in the event loop."""

    def __init__(
        self,
        write: Callable[[Session, Sequence[T]], Awaitable[Sequence[bool]]],
        *,
        most: int,
        sessions: int,
        after: Callable[[Session], Awaitable[None]],
    ) -> None:
        self._write = write
        self._after = after
        self._most = most
        self._sessions = sessions
        self._tasks: list[asyncio.Task[None]] = []
        self._open = 0
        self._waiting: deque[tuple[T, asyncio.Future[bool]]] = deque()
        self._begun_at = float("-inf")
        self._has_come = asyncio.Event()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_open(self) -> bool:
        """Whether a session is open. The first question opens them; one that was lost is replaced."""
        if not self._tasks:
            self._tasks = [asyncio.ensure_future(self._serve()) for _ in range(self._sessions)]
        return self._open > 0

    async def write(self, one: T) -> bool:
        """Whether it was written, once that is committed. False also if something has failed: maybe another one, maybe after the
        commit."""
        outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((one, outcome))
        self._has_come.set()
        return await outcome

    async def _serve(self) -> None:
        is_lost = False
        while True:
            try:
                session = await _connected()
            except Exception as error:  # of the system, the driver or the settings; those who wait find out the same
                if not is_lost:
                    log.warning("together.no_session", error=str(error))
                is_lost = True
                await asyncio.sleep(RECONNECT)
                continue
            is_lost = False
            self._open += 1
            try:
                while True:
                    await self._write_next(session)
            except Exception as error:
                # Whose fault it is, the callers find out one by one. Whether the session is of any use is not known: it is replaced.
                log.warning("together.failed", error=str(error))
            finally:
                self._open -= 1
                await session.close()
                if not self._open:
                    _resolve(self._waiting, [False] * len(self._waiting))
                    self._waiting.clear()

    async def _write_next(self, session: Session) -> None:
        await self._turn()
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._most))]
        written: Sequence[bool] = [False] * len(batch)
        try:
            written = await self._write(session, [one for one, _ in batch])
        finally:
            _resolve(batch, written)
        await self._after(session)

    async def _turn(self) -> None:
        """Wait until some have come, and until the last statement has begun PACE ago unless there are enough for another one."""
        while True:
            if not self._waiting:
                self._has_come.clear()
                await self._has_come.wait()
            now = time.monotonic()
            pause = 0 if len(self._waiting) >= self._most else self._begun_at + PACE - now
            if self._waiting and pause <= 0:
                self._begun_at = now
                return
            await asyncio.sleep(pause)


def _resolve(
    batch: Sequence[tuple[T, asyncio.Future[bool]]] | deque[tuple[T, asyncio.Future[bool]]], written: Sequence[bool]
) -> None:
    for (_, outcome), is_written in zip(batch, written, strict=True):
        if not outcome.done():
            outcome.set_result(is_written)


async def _connected() -> Session:
    """A session like those of Django."""
    parameters = {name: value for name, value in connection.get_connection_params().items() if name != "cursor_factory"}
    session = await psycopg.AsyncConnection.connect(**parameters, autocommit=True)
    for name, value in TIMEOUTS:
        await session.execute("SELECT set_config(%s, %s, false)", [name, value])
    return session
