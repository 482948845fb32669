"""A step of a body that has begun, and the one that runs in this thread or task."""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from agents.guards import openai_agents
from agents.journal.entries import Status, StepEntry
from agents.journal.protocol import StepRequest
from agents.kernel.effects import Effects
from agents.telemetry import doing


@dataclass(eq=False)
class Begun:
    """A step that has begun, or whose outcome is recorded."""

    key: str
    position: int
    is_keyed: bool
    request: StepRequest
    attempts: int = 1
    is_recorded: bool = False
    is_over: bool = False
    output: Any = None
    arguments: Any = None
    effects: Effects = field(default_factory=Effects)
    began: float = field(default_factory=time.monotonic)
    usage: Mapping[str, Any] | None = None
    try_again_after: float | None = None  # seconds

    def entry(self, status: Status, **what: Any) -> StepEntry:
        return StepEntry(
            key=self.key,
            position=self.position,
            is_keyed=self.is_keyed,
            effect=self.request.effect,
            status=status,
            attempts=self.attempts,
            arguments=self.arguments,
            took=time.monotonic() - self.began,
            kind=self.request.kind,
            usage=self.usage,
            **what,
        )


class Undone(Exception):
    """A transactional step did nothing, for the reason in `output`: its writes and effects are rolled back, and that is recorded."""

    def __init__(self, output: Any) -> None:
        super().__init__(output)
        self.output = output


# The running step of this thread or task.
current: ContextVar[Begun | None] = ContextVar("step", default=None)


def is_within_step() -> bool:
    """Is this the code of a step that goes on?"""
    step = current.get()
    return step is not None and not step.is_over


openai_agents.is_within_step = is_within_step


def doing_step(begun: Begun) -> AbstractContextManager[None]:
    """The span of a step. pydantic-ai creates the spans of model requests and tool calls."""
    if begun.request.kind != "step":
        return nullcontext()
    about = {
        "wakeful.step.key": begun.key,
        "wakeful.step.effect": begun.request.effect,
        "wakeful.step.attempt": begun.attempts,
    }
    return doing(f"step {begun.request.place.name}", **about)
