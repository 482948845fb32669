"""Steps of a journal that run in parallel on an event loop. The journal itself and transactional steps belong to the
main thread, which has the run's database session.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from asgiref.sync import sync_to_async

from agents.journal.begun import Begun
from agents.journal.engine import Journal
from agents.journal.keys import needs_key
from agents.journal.protocol import StepRequest

T = TypeVar("T")


async def in_main_thread(act: Callable[..., T], *arguments: Any, **named: Any) -> T:
    return await sync_to_async(act, thread_sensitive=True)(*arguments, **named)


async def to_its_end(step: Coroutine[Any, Any, T]) -> T:
    """Await the step in a task of its own: pydantic-ai cancels tasks beside a call that raises, and a half-done step
    would be repeated.
    """
    task = asyncio.ensure_future(step)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # the caller may have been cancelled
    return await asyncio.shield(task)


class ConcurrentSteps:
    """The steps of one execution of a body that are under way on its event loop."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._under_way = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._has_ended = False

    @property
    def is_alone(self) -> bool:
        """Is one step under way, and no other beside it?"""
        return self._under_way == 1

    async def finish(self) -> None:
        """Call after the body has ended: wait for the running steps and refuse new ones. Otherwise steps would be
        repeated, or their outcome would be unknown.
        """
        self._has_ended = True
        await self._is_idle.wait()

    @contextmanager
    def beside(self, request: StepRequest) -> Iterator[None]:
        """Encloses a running step. Permanent: the step has no key, and another step is running."""
        if self._has_ended:
            raise asyncio.CancelledError
        if self._under_way and not request.place.key and not self.journal.step_key:
            raise needs_key(request.place)
        self._under_way += 1
        self._is_idle.clear()
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._is_idle.set()

    async def run(self, begun: Begun, body: Callable[[], Awaitable[Any]]) -> Any:
        """Await the body of a step that has begun and is not transactional, and record its outcome."""
        with self.journal.inside(begun):
            try:
                async with asyncio.timeout(begun.request.seconds):
                    output = await body()
            except Exception as error:
                failure = error
            else:
                return await in_main_thread(self.journal.complete, begun, output)
        raise await in_main_thread(self.journal.fail, begun, failure)
