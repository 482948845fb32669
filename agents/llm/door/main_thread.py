"""Runs plain functions, which pydantic-ai would call in other threads, in the main thread: it has the run's database
session, so tools may use the ORM.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Executor, Future
from typing import Any

from pydantic_ai._utils import disable_threads

from agents.exceptions import Permanent
from agents.journal.concurrent import in_main_thread


class MainThread(Executor):
    def submit(self, act: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()

        async def run() -> None:
            try:
                done.set_result(await in_main_thread(act, *arguments, **named))
            except BaseException as error:
                done.set_exception(error)

        self._tasks.add(task := asyncio.get_running_loop().create_task(run()))
        task.add_done_callback(self._tasks.discard)
        return done

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()


def run_without_loop(tool: str, body: Callable[[], Awaitable[Any]]) -> Any:
    """Run a transactional tool to its end here, in the thread that has the transaction open. Permanent: it waits for
    something, so it is no plain function."""
    with disable_threads():
        steps: Generator[Any, Any, Any] = body().__await__()
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value
        steps.close()
    raise Permanent(
        f"tool {tool!r} is transactional, so it is a plain function (def) without a timeout: its transaction belongs to one "
        "thread. Give it another effect, or make it a plain function"
    )
