import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import lru_cache
from random import uniform
from typing import Any

from django.conf import settings

from agents import registry
from agents.agent import Agent

TEXTS = frozenset({"queue", "overlap"})
WHOLE = frozenset({"priority", "retries", "pause_after", "incident_after"})
NATURE = ("durable", "hold_key", "keep_content")
REPORTS = "reports"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The policy by which a run is executed; `Run.policy` has a snapshot. Durations are seconds."""

    queue: str = "default"
    priority: int = 5
    timeout: float = 0
    retries: int = 3
    backoff: float = 1
    backoff_factor: float = 3
    backoff_max: float = 900
    pause_after: int = 10
    incident_after: int = field(default_factory=lambda: int(settings.WAKEFUL_INCIDENT_AFTER))
    overlap: str = "allow"
    durable: bool = False
    hold_key: bool = False
    keep_content: bool = True
    tools: Sequence[str] | None = None  # those that its LLM calls may use; None: all that they have
    reports: Sequence[Mapping[str, Any]] = ()  # where its end is reported, as stored: another version may know more

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> "Policy":
        """Read the JSON of a trigger or a run. Unknown keys, of another version, are ignored; missing ones get defaults.
        ValueError names an invalid value: in a run it would stop every claim."""
        known = {field.name: _checked(field.name, stored[field.name]) for field in fields(cls) if field.name in stored}
        if not known.get("timeout"):
            is_durable = known.get("durable", False)
            longest = settings.WAKEFUL_DURABLE_TIMEOUT if is_durable else settings.WAKEFUL_ATOMIC_TIMEOUT
            known["timeout"] = longest.total_seconds()
        return cls(**known)

    @classmethod
    def of_agent(cls, agent: Agent) -> "Policy":
        """The policy that the agent's author declared."""
        return cls.load({**declared_by(agent), **nature_of(agent.name), "tools": agent.tools})

    @classmethod
    def of_run(cls, stored: Mapping[str, Any]) -> "Policy":
        """The snapshot of a run; if this version cannot read it the defaults, with no tool if its tools are capped."""
        try:
            return cls.load(stored)
        except (TypeError, ValueError):
            return cls.load({} if stored.get("tools") is None else {"tools": []})

    @classmethod
    def of_text(cls, stored: str) -> "Policy":
        """The snapshot of a run as stored; runs of a trigger have the same, so it is read once."""
        defaults = settings.WAKEFUL_ATOMIC_TIMEOUT, settings.WAKEFUL_DURABLE_TIMEOUT, settings.WAKEFUL_INCIDENT_AFTER
        return _of_text(stored, *defaults)

    def dump(self) -> dict[str, Any]:
        """Its JSON. Most runs have no reports, and their rows no word about them."""
        return {name: value for name, value in vars(self).items() if value or name != REPORTS}

    def reporting(self, more: Sequence[Mapping[str, Any]]) -> "Policy":
        """The policy with more reports, each once."""
        new = [report for report in more if report not in self.reports]
        return replace(self, reports=(*self.reports, *new)) if new else self

    def holds_key_while_waiting(self, key_limit: int) -> bool:
        return self.hold_key or (self.overlap == "queue" and key_limit == 1)

    def attempts_left(self, attempt: int) -> bool:
        return attempt <= self.retries

    def backoff_after(self, attempt: int) -> timedelta:
        """Exponential, with ± 20 % jitter, so that runs that failed together do not return together."""
        seconds = min(self.backoff * self.backoff_factor ** max(attempt - 1, 0), self.backoff_max)
        return timedelta(seconds=seconds * uniform(0.8, 1.2))  # noqa: S311 (no secret)


@lru_cache(maxsize=256)
def _of_text(stored: str, *defaults: Any) -> Policy:
    return Policy.of_run(json.loads(stored))


def nature_of(agent: str) -> dict[str, bool]:
    """The policy fields that the agent's code decides and an operator cannot override, such as `durable`."""
    try:
        known = registry.get(agent)
    except KeyError:
        return {}
    return {name: getattr(known, name) for name in NATURE}


def declared_by(agent: Agent) -> dict[str, Any]:
    """The policy fields of an agent's declaration that an operator may override."""
    incident_after = {} if agent.incident_after is None else {"incident_after": agent.incident_after}
    reports = {REPORTS: [report.dump() for report in agent.reports]} if agent.reports else {}
    return {
        **incident_after,
        **reports,
        "queue": agent.queue,
        "priority": agent.priority,
        "timeout": agent.timeout.total_seconds() if agent.timeout else 0,
        "retries": agent.retries,
        "pause_after": agent.pause_after,
    }


def _checked(name: str, value: Any) -> Any:
    if name == REPORTS:
        if isinstance(value, (list, tuple)) and all(isinstance(report, Mapping) for report in value):
            return tuple(value)
        raise ValueError(f"policy: reports are {value!r}; use a list of objects")
    if name == "tools":
        if value is None:
            return None
        if isinstance(value, (list, tuple)) and all(isinstance(tool, str) and tool for tool in value):
            return tuple(value)
        raise ValueError(f"tools are {value!r}; use a list of names, or null for all that the agent has")
    if name in TEXTS:
        if isinstance(value, str) and value:
            return value
        raise ValueError(f"policy: {name} is {value!r}, not a name")
    if name in NATURE:
        if isinstance(value, bool):
            return value
        raise ValueError(f"policy: {name} is {value!r}; use true or false")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
        raise ValueError(f"policy: {name} is {value!r}, not a number of 0 or more")
    if name in WHOLE and value != int(value):
        raise ValueError(f"policy: {name} is {value!r}, not a whole number")
    if name == "priority" and value > 9:
        raise ValueError(f"policy: priority is {value!r}; use 0 (most urgent) to 9 (least)")
    return value
