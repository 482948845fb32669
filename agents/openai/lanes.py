"""Which recorded request a replay makes again: by its prompt, and where that has changed, by its number in its lane. A lane is one run of
an agent in a call, `Runner.run`, whose requests come one after the other; runs beside each other, as of guardrails and of agents that are
tools, are in lanes of their own, which their agent and their input name."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from agents.guards.openai_agents import Given
from agents.journal.engine import Journal
from agents.journal.protocol import fitting

LONGEST_NAME = 60


@dataclass
class Lane:
    name: str = ""  # empty: that of the call itself
    known: dict[int, str] = field(default_factory=dict)  # fingerprints of recorded requests, by their numbers
    taken: set[int] = field(default_factory=set)
    made: dict[str, asyncio.Future[Any]] = field(default_factory=dict)  # requests under way or failed, by fingerprints
    kept: int = 0  # items that the steps of its requests keep
    called: set[str] = field(default_factory=set)  # tools; what reads their results may be a text of the SDK

    def begins(self, given: Given) -> int:
        """Which items are new, behind those of its last request and its answer. Those of a conversation at the provider all are."""
        is_elsewhere = given.get("previous_response_id") or given.get("conversation_id")
        return self.kept if self.kept < len(given["input"]) and not is_elsewhere else 0

    def next(self, fingerprint: str) -> str:
        """The key of its next request."""
        same = [number for number in self.known.keys() - self.taken if self.known[number] == fingerprint]
        first = next(number for number in range(1, len(self.taken) + 2) if number not in self.taken)
        number = min(same, default=first)
        self.taken.add(number)
        self.known.setdefault(number, fingerprint)
        return f"{self.name}:request {number}" if self.name else f"request {number}"


class Lanes:
    """Of one call of `run.openai`, whose key is `place`."""

    def __init__(self, journal: Journal, place: str) -> None:
        self._known = _recorded(journal, place)
        self._names: Counter[str] = Counter()
        self._root = Lane(known=self._known.get("", {}))

    @property
    def here(self) -> Lane:
        return self._entered or self._root

    @contextmanager
    def entered(self, agent: Any, input: Any) -> Iterator[None]:
        """The first run is that of the call itself."""
        lane = self._root if self._entered is None else self._nested(agent, input)
        token = _here.set((self, lane))
        try:
            yield
        finally:
            _here.reset(token)

    def name(self, name: str, what: Any) -> str:
        """A name that is the same on every replay; what has the same name, asks the same."""
        told = json.dumps(what, ensure_ascii=False, sort_keys=True, default=lambda other: type(other).__name__)
        base = fitting(f"{name[:LONGEST_NAME]} {sha256(told.encode()).hexdigest()[:12]}", beside="")
        self._names[base] += 1
        return base if self._names[base] == 1 else f"{base} {self._names[base]}"

    @property
    def _entered(self) -> Lane | None:
        lanes, lane = _here.get() or (None, None)
        return lane if lanes is self else None

    def _nested(self, agent: Any, input: Any) -> Lane:
        # An agent that goes on after an approval has its own input in its state.
        name = self.name(str(getattr(agent, "name", "")), getattr(input, "_original_input", input))
        return Lane(name=name, known=self._known.get(name, {}))


_here: ContextVar[tuple[Lanes, Lane] | None] = ContextVar("openai_lane", default=None)


def _recorded(journal: Journal, place: str) -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = {}
    for key, step in journal.store.steps.items():
        if parts := re.fullmatch(rf"{re.escape(place)}:(?:(.+):)?request (\d+)", key, re.DOTALL):
            output = step.output if step.status == "done" else None
            found.setdefault(parts[1] or "", {})[int(parts[2])] = str((output or {}).get("prompt", ""))
    return found
