from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.support.stack import Stack


class Ground(ExitStack, ABC):
    """Something that changes by itself. It is entered before `prepare`, which may enter contexts of its own."""

    agent = ""  # in tests/userapps/ground

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    @property
    def env(self) -> dict[str, str]:
        """Settings of the stack, read by its agents as well."""
        return {}

    def prepare(self, stack: Stack) -> None:  # noqa: B027  (most need only what their agent declares)
        """Before the processes start; the triggers and sources that agents declare are there."""

    @abstractmethod
    def move(self, stack: Stack) -> None:
        """Change, and wait where a change must be an event before the next one. In a thread of its own."""

    @abstractmethod
    def is_complete(self, stack: Stack) -> bool:
        """Whether every change is an event."""

    @abstractmethod
    def check(self, stack: Stack) -> None:
        """When all runs are over: each change is exactly one event, and its run has seen it."""

    def results(self, stack: Stack) -> list[Any]:
        """Of all runs of its agent, which must have succeeded."""
        runs = stack.query("SELECT status, result FROM runs_run WHERE agent = %s", self.agent)
        assert {run["status"] for run in runs} <= {"succeeded"}
        return [run["result"] for run in runs]
