import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from asgiref.sync import async_to_sync

from agents import Agent, AgentRun
from runs.exceptions import DeadlineExceeded


def missed(seconds: float) -> DeadlineExceeded:
    return DeadlineExceeded(f"the body took longer than its timeout of {seconds:g} s")


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise DeadlineExceeded in this (the main) thread once `seconds` have passed; the parent's hard stop comes later."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise missed(seconds)

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def run_within(agent: Agent, run: AgentRun, seconds: float) -> Any:
    """The result of the agent's body; DeadlineExceeded once `seconds` have passed."""
    if not agent.is_async:
        with deadline(seconds):
            return agent(run)
    run.events  # noqa: B018 (read here: a coroutine may not ask the database)
    in_time, result = async_to_sync(_awaited)(agent, run, seconds)
    if not in_time:
        raise missed(seconds)
    return result


async def _awaited(agent: Agent, run: AgentRun, seconds: float) -> tuple[bool, Any]:
    # A signal would strike the thread that waits for the coroutine, not the coroutine.
    try:
        async with asyncio.timeout(seconds) as limit:
            return True, await agent.body(run)
    except TimeoutError:
        if not limit.expired():
            raise
        return False, None
