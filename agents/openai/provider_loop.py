"""The event loop of this process on which requests are sent. The connections of a client belong to the loop that opened them; each call of
`run.openai` has a loop of its own, and clients are shared and live longer."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


async def sent(request: Coroutine[Any, Any, T]) -> T:
    """The request has the context of its caller. Cancelled with it."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(request, _running()))


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
