"""The argument of a gate: the events, the agent's state and checklist, and the state that the last success kept."""

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import Any

import structlog

from agents.checklists.run_checklist import ChecklistView, HoldItems
from agents.guards.sql_writes import gate_writing_refused
from agents.journal.protocol import Place
from agents.kernel.effects import Effects
from agents.run import Event
from agents.state import State


class GateRun:
    """A gate's view of the run that it decides about. Its methods only read, and PostgreSQL refuses writes of the gate
    itself.
    """

    def __init__(
        self,
        *,
        agent: str,
        trigger: str = "",
        input: Any = None,
        last: Any = None,
        is_last_tainted: bool = False,
        read_events: Callable[[], list[Event]],
        read_now: Callable[[], datetime],
        is_tainted: bool = False,
        free_items: HoldItems = list,
    ) -> None:
        self.agent = agent
        self.trigger = trigger
        self.is_tainted = is_tainted
        self._last = last
        self._is_last_tainted = is_last_tainted
        self.checklist = ChecklistView(agent, trigger, free_items)
        self.state = State(agent, leave=_refused, run=self)
        self._input = input
        self._read_events = read_events
        self._read_now = read_now

    @cached_property
    def events(self) -> list[Event]:
        """Every event that the run would handle, oldest first."""
        return self._read_events()

    @property
    def event(self) -> Event:
        """The event that would start the run (the newest of several)."""
        return self.events[-1]

    @property
    def input(self) -> Any:
        """The input that the run would get: see `AgentRun.input`."""
        return self.event.data if self._input is None else self._input

    @property
    def last(self) -> Any:
        """The `state` of the last `Fire` whose run succeeded; None if there is none. If the gate that returned it had
        seen untrusted data, this gate is tainted as well.
        """
        self.is_tainted |= self._is_last_tainted
        return self._last

    def now(self) -> datetime:
        """The current time of the database, aware UTC."""
        return self._read_now()

    @property
    def effects(self) -> Effects:
        """Always empty: a gate has no effects."""
        return Effects()

    def taint(self) -> None:
        """Mark the gate as tainted: it has seen untrusted data. The run and the gate's state are tainted then. Reading
        a tainted state value calls this.
        """
        self.is_tainted = True

    @cached_property
    def log(self) -> Any:
        """A logger whose lines name the agent."""
        return structlog.get_logger("agent").bind(agent=self.agent, gate=True)


def _refused(place: Place, act: Callable[[str], Any]) -> Any:
    raise gate_writing_refused(place.name)
