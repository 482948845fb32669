import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from asgiref.sync import async_to_sync

from agents import Agent, AgentRun, AsyncAgentRun, Permanent
from agents.guards.body import within_body
from runs.exceptions import DeadlineExceeded, StepTimedOut


def missed(seconds: float) -> DeadlineExceeded:
    return DeadlineExceeded(f"the body took longer than its timeout of {seconds:g} s")


@contextmanager
def deadline(seconds: float, missed: Callable[[float], BaseException] = missed) -> Iterator[None]:
    """Inside the block, raise `missed(seconds)` in this (the main) thread after `seconds`, unless an outer deadline
    comes first. The parent's hard stop comes later.
    """

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise missed(seconds)

    began = time.monotonic()
    outer = signal.getitimer(signal.ITIMER_REAL)[0]
    if outer and outer <= seconds:
        yield
        return
    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        if outer:
            signal.setitimer(signal.ITIMER_REAL, max(outer - (time.monotonic() - began), 0.001))


def seconds_left() -> float | None:
    """The seconds until the deadline of this (the main) thread; None: there is no deadline."""
    return signal.getitimer(signal.ITIMER_REAL)[0] or None


@contextmanager
def step_deadline(key: str, seconds: float) -> Iterator[None]:
    """Inside the block, raise TimeoutError after `seconds`. Permanent: the step does not run in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        raise Permanent(f"step {key!r}: timeout= works in the body's own thread only; use the timeout of your client")
    try:
        with deadline(seconds, lambda limit: StepTimedOut(f"step {key!r} took longer than its timeout of {limit:g} s")):
            yield
    except StepTimedOut as error:
        raise TimeoutError(str(error)) from error


def run_within(agent: Agent, run: AgentRun | AsyncAgentRun, seconds: float) -> Any:
    """The result of the agent's body; DeadlineExceeded after `seconds`."""
    if not agent.is_async:
        with deadline(seconds):
            return agent(run)
    run.events  # noqa: B018 (read here: a coroutine may not ask the database)
    with within_body():
        in_time, result = async_to_sync(_awaited)(agent, run, seconds)
    if not in_time:
        raise missed(seconds)
    return result


async def _awaited(agent: Agent, run: AgentRun | AsyncAgentRun, seconds: float) -> tuple[bool, Any]:
    # A signal would interrupt the thread that waits for the coroutine, not the coroutine.
    try:
        async with asyncio.timeout(seconds) as limit:
            return True, await _to_its_end(agent, run)
    except TimeoutError:
        if not limit.expired():
            raise
        return False, None


async def _to_its_end(agent: Agent, run: AgentRun | AsyncAgentRun) -> Any:
    """The body's result, after its steps have ended too: a failure or a wait does not stop the steps beside it."""
    finish_steps = run.finish_steps if isinstance(run, AsyncAgentRun) else None
    try:
        result = await agent.body(run)
    except asyncio.CancelledError:
        raise
    except BaseException:
        if finish_steps:
            await finish_steps()
        raise
    if finish_steps:
        await finish_steps()
    return result
