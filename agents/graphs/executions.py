"""Which recorded request a node makes again: by its prompt, and where that has changed, by its number in one execution of the node."""

import re
import threading
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from langchain_core.messages import AIMessage
from langgraph.config import get_config

from agents.exceptions import Permanent
from agents.graphs.messages import Asked
from agents.journal.engine import Journal
from agents.journal.keys import Execution

Outcome: TypeAlias = AIMessage | Exception


@dataclass
class Made:
    """The numbers of the requests that one execution of a node has made."""

    by: Execution
    taken: set[int] = field(default_factory=set)


class Executions:
    """Of the nodes of one call of `run.graph`, whose key is `place`."""

    def __init__(self, journal: Journal, place: str) -> None:
        self._known = _recorded(journal, place)  # fingerprints, by nodes and numbers
        self._made: dict[str, Made] = {}  # by the last execution of each node
        self._outcomes: dict[str, Outcome] = {}  # in this process
        self._lock = threading.Lock()

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

    def _of(self, node: str) -> Made:
        execution, known = execution_here(), self._made.get(node)
        if execution is None:
            raise Permanent("a journaled model is called in a graph, but in no node of it")
        if known is None or not known.by.is_same(execution):
            known = self._made[node] = Made(execution)
        return known


def _recorded(journal: Journal, place: str) -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = {}
    for key, step in journal.store.steps.items():
        if parts := re.fullmatch(rf"{re.escape(place)}:(.+):request (\d+)", key):
            output = step.output if step.status == "done" else None
            found.setdefault(parts[1], {})[int(parts[2])] = str((output or {}).get("prompt", ""))
    return found


def execution_here() -> Execution | None:
    """Of the node that runs in this thread or task. LangGraph prepares the task of a node for each execution besides those of its
    retry policy, which it numbers."""
    try:
        config: Any = get_config()
    except RuntimeError:
        return None
    about = config.get("configurable", {})
    node, task = config.get("metadata", {}).get("langgraph_checkpoint_ns"), about.get("__pregel_scratchpad")
    if not node or task is None:
        return None
    info = getattr(about.get("__pregel_runtime"), "execution_info", None)
    return Execution(node, task, int(getattr(info, "node_attempt", 1)))
