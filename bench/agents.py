"""The agents that are measured; the bench's stack gets them by WAKEFUL_APPS=bench."""

import time

from agents import AgentRun, agent, on
from bench.names import DRAINED
from runs.sql import execute


@agent("bench.noop", triggers=[on.event("bench.noop")])
def noop(run: AgentRun) -> None:
    """Nothing, once."""


@agent("bench.last", triggers=[on.event("bench.last")], priority=9)
def last(run: AgentRun) -> None:
    """Claimed after every no-op; says so with its commit."""
    execute(f"NOTIFY {DRAINED}")


@agent("bench.first_line", triggers=[on.event("bench.ping")])
def first_line(run: AgentRun) -> float:
    return time.time()
