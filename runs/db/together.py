"""One statement with the parameters of many, for an event loop: an asynchronous session executes all that have come while it was busy
in one round trip and one transaction."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import psycopg
import structlog
from django.db import connection

from runs.db.sql import Row

log = structlog.get_logger(__name__)

Session = psycopg.AsyncConnection[Row]
Waiting = tuple[Sequence[Any], "asyncio.Future[list[Row] | None]"]
RECONNECT = 1.0  # seconds
# Executions of one transaction. Above, they cost hardly less, and the first waits for the last.
MOST = 64
# Seconds from the beginning of one transaction to that of the next: more come meanwhile, and a transaction for each would cost more than
# all else. So another session is busy only where a transaction takes longer.
PACE = 0.002
# One that waits for the lock of another session must not hold up the others for long: each is executed by itself then. A process that
# freezes while it sends holds no locks for ever; that of a session which is idle in a transaction ends in any case.
TIMEOUTS = (("lock_timeout", "200ms"), ("idle_in_transaction_session_timeout", "20s"), ("tcp_user_timeout", "20s"))
SINCE_17 = (("transaction_timeout", "20s"),)


class Together:
    """`after` is awaited with the session after each commit; it may fail. Used only in the event loop."""

    def __init__(self, statement: str, *, sessions: int, after: Callable[[Session], Awaitable[None]]) -> None:
        self._statement = statement
        self._after = after
        self._sessions = sessions
        self._tasks: list[asyncio.Task[None]] = []
        self._open = 0
        self._waiting: deque[Waiting] = deque()
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

    async def execute(self, parameters: Sequence[Any]) -> list[Row] | None:
        """Its rows, once the transaction has been committed. None: something has failed, maybe of another execution, maybe after the
        commit."""
        outcome: asyncio.Future[list[Row] | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((parameters, outcome))
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
                    await self._execute_next(session)
            except Exception as error:
                # Whose fault it is, the callers find out one by one. The session is replaced: the driver takes a statement for prepared
                # that the server has skipped.
                log.warning("together.failed", error=str(error))
            finally:
                self._open -= 1
                await session.close()
                if not self._open:
                    _resolve(self._waiting, [None] * len(self._waiting))
                    self._waiting.clear()

    async def _execute_next(self, session: Session) -> None:
        await self._turn()
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST))]
        found: Sequence[list[Row] | None] = [None] * len(batch)
        try:
            found = await _execute(session, self._statement, [parameters for parameters, _ in batch])
        finally:
            _resolve(batch, found)
        await self._after(session)

    async def _turn(self) -> None:
        """Wait until some have come, and until the last transaction has begun PACE ago unless there are enough for another one."""
        while True:
            if not self._waiting:
                self._has_come.clear()
                await self._has_come.wait()
            now = time.monotonic()
            pause = 0 if len(self._waiting) >= MOST else self._begun_at + PACE - now
            if self._waiting and pause <= 0:
                self._begun_at = now
                return
            await asyncio.sleep(pause)


def _resolve(batch: Sequence[Waiting] | deque[Waiting], found: Sequence[list[Row] | None]) -> None:
    for (_, outcome), rows in zip(batch, found, strict=True):
        if not outcome.done():
            outcome.set_result(rows)


async def _execute(session: Session, statement: str, batch: Sequence[Sequence[Any]]) -> list[list[Row]]:
    async with session.cursor() as cursor, session.pipeline() as pipeline:
        await cursor.executemany(statement, _sent_with_the_last(batch, pipeline), returning=True)
        return [await result.fetchall() async for result in cursor.results()]


def _sent_with_the_last(batch: Sequence[Sequence[Any]], pipeline: Any) -> Iterator[Sequence[Any]]:
    """The driver would send each by itself."""
    *others, last = batch
    pipeline._communicate_gen = lambda: iter(())
    yield from others
    del pipeline._communicate_gen
    yield last


async def _connected() -> Session:
    """A session like those of Django."""
    parameters = {name: value for name, value in connection.get_connection_params().items() if name != "cursor_factory"}
    session = await psycopg.AsyncConnection.connect(**parameters, autocommit=True)
    timeouts = (*TIMEOUTS, *(SINCE_17 if session.info.server_version >= 170000 else ()))
    for name, value in timeouts:
        await session.execute("SELECT set_config(%s, %s, false)", [name, value])
    return session
