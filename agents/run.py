from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from uuid import UUID

import structlog

from .effects import Effects, Emission, Notice, Urgency
from .state import State

KEY_LENGTH = 200


@dataclass(frozen=True, kw_only=True)
class Event:
    """What happened. `data` is its JSON payload, None where it had none or retention has taken it."""

    id: UUID
    type: str
    source: str
    subject: str = ""
    time: datetime
    data: Any = None


class AgentRun:
    """An agent's view of its run: why it woke, and what it may leave behind."""

    def __init__(
        self,
        *,
        id: UUID,
        agent: str,
        attempt: int = 1,
        trigger: str = "",
        input: Mapping[str, Any] | None = None,
        read_events: Callable[[], list[Event]],
    ) -> None:
        self.id = id
        self.agent = agent
        self.attempt = attempt
        self.trigger = trigger
        self.state = State(agent)
        self.effects = Effects()
        self.log = structlog.get_logger("agent").bind(agent=agent, run=str(id))
        self._input = input
        self._read_events = read_events

    @cached_property
    def events(self) -> list[Event]:
        """Every event this run handles, oldest first."""
        return self._read_events()

    @property
    def event(self) -> Event:
        """The event that woke this run (the newest, where there are several)."""
        return self.events[-1]

    @property
    def input(self) -> Any:
        """The trigger's input mapping applied to the event; the event's data where it has none."""
        return self.event.data if self._input is None else self._input

    def emit(self, type: str, data: Any = None, *, key: str = "", subject: str = "") -> None:
        """Emit an event once the run commits. `key` names it within the run; default: its ordinal."""
        if not type or not all(isinstance(text, str) for text in (type, key, subject)):
            raise ValueError(f"emit({type!r}): type, key and subject are texts, and the type is not empty")
        if len(key) > KEY_LENGTH:
            raise ValueError(f"emit({type!r}): the key has {len(key)} characters; {KEY_LENGTH} is the most")
        key = key or str(len(self.effects.emissions) + 1)
        if any(emission.key == key for emission in self.effects.emissions):
            raise ValueError(f"emit({type!r}): this run has already emitted an event under the key {key!r}")
        self.effects.emissions.append(Emission(type=type, data=data, key=key, subject=subject))

    def notify(self, text: str, *, urgency: Urgency = "normal") -> None:
        """Tell a person once the run commits."""
        if not isinstance(text, str) or not text:
            raise ValueError(f"notify({text!r}): say something, as a text")
        if urgency not in ("low", "normal", "high"):
            raise ValueError(f'notify: urgency {urgency!r} is not "low", "normal" or "high"')
        self.effects.notices.append(Notice(text=text, urgency=urgency))

    def now(self) -> datetime:
        """This instant, aware UTC."""
        return datetime.now(UTC)
