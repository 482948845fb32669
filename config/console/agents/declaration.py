"""What the code declares of an agent, and what operators changed of it."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from agents import registry
from agents.agent import Agent
from agents.kernel.durations import in_words
from config.console.parts.links import link, page
from config.console.parts.sections import Facts, Table, pretty
from triggers.models import Trigger


def declaration_of(name: str) -> Facts:
    try:
        agent = registry.get(name)
    except KeyError:
        return Facts(title="Declaration", rows=[("Code", "This process has none of it.")])
    return Facts(
        title="Declaration",
        rows=[
            ("Function", _function(agent)),
            ("Version here", agent.version),
            ("Durable", "yes" if agent.durable else "no"),
            ("Queue", agent.queue),
            ("Priority", str(agent.priority)),
            ("Timeout", _value(agent.timeout) or "the default"),
            ("Retries", str(agent.retries)),
            ("Pauses after", f"{agent.pause_after} failed runs in a row" if agent.pause_after else "never"),
            ("Key", agent.key),
            ("Overlap", agent.overlap or ""),
            ("Rate", agent.rate),
            ("Debounce", _value(agent.debounce)),
            ("Batch", agent.batch or ""),
            ("Tools", "" if agent.tools is None else ", ".join(agent.tools) or "none"),
            ("Connections", ", ".join(_connection(*pair) for pair in agent.connections.names.items())),
            ("Budget", _budget(agent)),
            ("Gate", "yes" if agent.gate else ""),
            ("Content of calls", "" if agent.keep_content else "removed when the run succeeds"),
        ],
    )


def _connection(called: str, name: str) -> str:
    return name if called == name else f"{name} (as {called})"


def overrides_of(triggers: Sequence[Trigger]) -> list[Table]:
    rows = [
        (
            link(page("triggers_trigger", one.pk), one.slug),
            field,
            _value((one.declared or {}).get(field)),
            _now(one, field),
        )
        for one in triggers
        for field in one.overrides
    ]
    if not rows:
        return []
    return [
        Table(
            title="Changed by operators",
            headers=("Trigger", "Field", "In the code", "Now"),
            rows=rows,
            empty="",
            note="Deploys keep these changes; Reset to the code, on the trigger's page, discards them.",
            is_cards=True,
        )
    ]


def _function(agent: Agent) -> str:
    name = getattr(agent.body, "__qualname__", "")
    return f"{agent.body.__module__}.{name}" if name else "none: a prompt agent"


def _budget(agent: Agent) -> str:
    caps = vars(agent.budget) if agent.budget else {}
    return ", ".join(f"{name} {value}" for name, value in caps.items() if value is not None)


def _now(trigger: Trigger, field: str) -> str:
    return _value(getattr(trigger, field)) if hasattr(trigger, field) else "see its schedule"


def _value(value: Any) -> str:
    if isinstance(value, timedelta):
        return in_words(value)
    if isinstance(value, str):
        return value
    return "" if value is None else pretty(value)
