"""Which recorded request a node makes again: by its prompt, and where that has changed, by its number in one execution of the node."""

import re
import threading
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from langchain_core.messages import AIMessage
from langgraph.config import get_config

from agents.graphs.messages import Asked
from agents.journal.engine import Journal

Outcome: TypeAlias = AIMessage | Exception


@dataclass
class Execution:
    """One execution of a node: the numbers of the requests that it has made."""

    attempt: int
    taken: set[int] = field(default_factory=set)


class Executions:
    """Of the nodes of one call of `run.graph`, whose key is `place`."""

    def __init__(self, journal: Journal, place: str) -> None:
        self._known = _recorded(journal, place)  # fingerprints, by nodes and numbers
        self._executions: dict[str, Execution] = {}
        self._outcomes: dict[str, Outcome] = {}  # in this process
        self._lock = threading.Lock()

    def begin_pass(self) -> None:
        """LangGraph begins to execute nodes, perhaps those that it has begun before."""
        self._executions.clear()

    def next(self, node: str, asked: Asked) -> tuple[str, Outcome | None]:
        """The key of this request of the node, and its outcome where this process has seen that."""
        with self._lock:
            taken = self._of(node).taken
            known = self._known.setdefault(node, {})
            same = [number for number in known.keys() - taken if known[number] == asked.fingerprint]
            first = next(number for number in range(1, len(taken) + 2) if number not in taken)
            number = min(same, default=first)
            taken.add(number)
            known.setdefault(number, asked.fingerprint)
            key = f"{node}:request {number}"
            return key, self._outcomes.get(key)

    def note(self, key: str, outcome: Outcome) -> None:
        self._outcomes[key] = outcome

    def _of(self, node: str) -> Execution:
        attempt = _attempt()
        known = self._executions.get(node)
        if known is None or known.attempt != attempt:
            known = self._executions[node] = Execution(attempt)
        return known


def _recorded(journal: Journal, place: str) -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = {}
    for key, step in journal.store.steps.items():
        if parts := re.fullmatch(rf"{re.escape(place)}:(.+):request (\d+)", key):
            output = step.output if step.status == "done" else None
            found.setdefault(parts[1], {})[int(parts[2])] = str((output or {}).get("prompt", ""))
    return found


def _attempt() -> int:
    """Of the node's retry policy."""
    config: Any = get_config()
    runtime = config["configurable"].get("__pregel_runtime")
    info = getattr(runtime, "execution_info", None)
    return int(getattr(info, "node_attempt", 1))
