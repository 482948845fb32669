"""The event loop of this process on which requests of openai-agents are sent. The connections of a client belong to the loop that opened
them; each call of `run.openai` and each `Runner.run_sync` has a loop of its own, and clients are shared and live longer."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


async def sent(request: Coroutine[Any, Any, T]) -> T:
    """The request has the context of its caller. Cancelled with it."""
    if asyncio.get_running_loop() is _loop:
        return await request
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(request, _running()))


async def streamed(events: AsyncIterator[T]) -> AsyncIterator[T]:
    """The events of a request, as they come."""
    if asyncio.get_running_loop() is _loop:
        async for event in events:
            yield event
        return
    # One task there has the request from its first event to its last: its client expects that.
    here, came = asyncio.get_running_loop(), asyncio.Queue[list[T] | None]()

    async def read() -> None:
        try:
            async for event in events:
                here.call_soon_threadsafe(came.put_nowait, [event])
        finally:
            here.call_soon_threadsafe(came.put_nowait, None)

    reading = asyncio.run_coroutine_threadsafe(read(), _running())
    try:
        while one := await came.get():
            yield one[0]
        await asyncio.wrap_future(reading)
    finally:
        reading.cancel()


def _running() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="openai-agents", daemon=True).start()
        return _loop


def _forget() -> None:
    """In the child of a fork, which has no such thread."""
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
