"""The run of an `async def` agent with durable=True: AgentRun with awaitable methods."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from asgiref.sync import sync_to_async

from agents.journal.engine import Begun, Journal
from agents.journal.keys import needs_key
from agents.journal.protocol import Effect, StepRequest

from .run import AgentRun, Duration, step_request

T = TypeVar("T")
AWAITED = frozenset(
    {"emit", "notify", "spawn", "wake_in", "next_check", "schedule", "now", "uuid", "random", "sleep", "sleep_until"}
    | {"wait_for_event", "wait_for_signal", "ask_approval", "join", "gather"}
)


class AsyncState:
    """`run.state`, awaitable."""

    def __init__(self, run: AgentRun) -> None:
        self._state = run.state

    async def get(self, name: str, default: Any = None) -> Any:
        return await _in_the_main_thread(self._state.get, name, default)

    async def set(self, name: str, value: Any) -> None:
        await _in_the_main_thread(self._state.set, name, value)


class AsyncAgentRun:
    """AgentRun whose methods that read or write the journal are awaitable; other attributes are AgentRun's own.

    A step that is a coroutine function runs on the event loop, in parallel with others if gathered. A transactional step is
    a plain function, because its transaction belongs to one thread.
    """

    def __init__(self, run: AgentRun, journal: Journal) -> None:
        self._run = run
        self._journal = journal
        self._under_way = 0  # steps
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._has_ended = False
        self.state = AsyncState(run)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._run, name)
        return partial(_in_the_main_thread, found) if name in AWAITED else found

    async def step(
        self,
        name: str,
        body: Callable[..., Any],
        *arguments: Any,
        key: object = "",
        effect: Effect = "transactional",
        retries: int = 0,
        timeout: Duration | None = None,
    ) -> Any:
        """`AgentRun.step`, whose body may be a coroutine function unless it is transactional."""
        request = step_request(name, arguments, key, effect, retries, timeout)
        if iscoroutinefunction(body) and effect == "transactional":
            raise TypeError(
                f"step {name!r} is transactional, so its body is a plain function (def): its transaction belongs to one "
                "thread. Give it another effect, or make it a plain function"
            )
        with self._beside(request):
            begun = await _in_the_main_thread(self._journal.begin, request)
            if begun.is_recorded:
                return begun.output
            if not iscoroutinefunction(body):
                with self._run.state.undone_by_failure():
                    return await _in_the_main_thread(self._journal.perform, begun, partial(body, *arguments))
            return await self._await(begun, partial(body, *arguments), request.seconds)

    async def finish_steps(self) -> None:
        """Call after the body has ended: let its running steps end and begin no other. Otherwise they would be repeated, or
        their outcome would be unknown."""
        self._has_ended = True
        await self._is_idle.wait()

    @contextmanager
    def _beside(self, request: StepRequest) -> Iterator[None]:
        if self._has_ended:
            raise asyncio.CancelledError
        if self._under_way and not request.place.key and not self._journal.step_key:
            raise needs_key(request.place)
        self._under_way += 1
        self._is_idle.clear()
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._is_idle.set()

    async def _await(self, begun: Begun, body: Callable[[], Any], seconds: float | None) -> Any:
        with self._journal.inside(begun):
            try:
                async with asyncio.timeout(seconds):
                    output = await body()
            except Exception as error:
                failure = error
            else:
                return await _in_the_main_thread(self._journal.complete, begun, output)
        raise await _in_the_main_thread(self._journal.fail, begun, failure)


async def _in_the_main_thread(act: Callable[..., T], *arguments: Any, **named: Any) -> T:
    # The run's database session belongs to the main thread.
    return await sync_to_async(act, thread_sensitive=True)(*arguments, **named)
