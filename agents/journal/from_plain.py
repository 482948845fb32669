"""Steps of a journal that run on an event loop, from the plain function of a body."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from asgiref.sync import SyncToAsync, async_to_sync

from agents.journal.concurrent import ConcurrentSteps
from agents.journal.engine import Journal

T = TypeVar("T")


def from_plain_function(journal: Journal, act: Callable[[ConcurrentSteps], Awaitable[T]]) -> T:
    """Await `act` on an event loop of its own, until shortly before the time of the body is over."""

    async def run() -> list[T]:
        steps = ConcurrentSteps(journal)
        limit = asyncio.timeout(_most(journal.store.seconds_left))
        try:
            async with limit:
                try:
                    return [await act(steps)]
                except asyncio.CancelledError:
                    raise
                except BaseException:
                    await steps.finish()  # parallel steps would be repeated otherwise
                    raise
        except TimeoutError:
            if not limit.expired():
                raise
            return []

    around = getattr(SyncToAsync.threadlocal, "main_event_loop", None)
    try:
        done: list[T] = async_to_sync(run)()
    finally:
        # The deadline of a body interrupts this while a thread of the loop may go on: no later run may be put on that loop.
        SyncToAsync.threadlocal.main_event_loop = around
    if not done:
        time.sleep(1 + (journal.store.seconds_left or 0))  # the signal of the body's deadline arrives here
        raise TimeoutError("the time of the body was over")
    return done[0]


def _most(seconds: float | None) -> float | None:
    # The signal interrupts the thread that waits for the loop. The loop must end first.
    return None if seconds is None else max(seconds - min(1.0, seconds / 5), 0.0)
