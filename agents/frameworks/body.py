"""An event loop and threads for the code of another framework, from the plain function of a body."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from django.db import connections

from agents.journal.concurrent import ConcurrentSteps
from agents.journal.engine import Journal
from agents.journal.from_plain import from_plain_function

T = TypeVar("T")


class BodyThreads(ThreadPoolExecutor):
    """For code of the body that is plain functions, such as nodes and tools: each ends its database sessions."""

    def submit(self, act: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        def run() -> T:
            try:
                return act(*arguments, **named)
            finally:
                connections.close_all()

        return super().submit(run)


def on_a_loop(journal: Journal, act: Callable[[ConcurrentSteps], Awaitable[T]]) -> T:
    """Await `act` on an event loop of its own, and then its threads."""

    async def run(steps: ConcurrentSteps) -> T:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(BodyThreads(thread_name_prefix="body"))
        try:
            return await act(steps)
        finally:
            # What goes on in a thread would write behind the end of the body.
            await loop.shutdown_default_executor()

    return from_plain_function(journal, run)
