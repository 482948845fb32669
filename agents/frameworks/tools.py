"""The tool cap of a run, over the tools that a model of another framework is offered and those that it calls."""

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any

from agents.exceptions import Permanent
from agents.guards import openai_agents

# How many tools of LangChain, each called by the one before it, this thread or task is in.
depth: ContextVar[int] = ContextVar("tool_depth", default=0)


def is_in_tool() -> bool:
    """Is this the code of a tool of another framework, which a model may have called? Of `run.openai` all code counts."""
    return depth.get() > 0 or openai_agents.calling.get() is not None


def name_of(tool: Any) -> str:
    """The name of a tool as a provider is given it; empty where that is not known."""
    if not isinstance(tool, Mapping):
        return str(getattr(tool, "name", "") or getattr(tool, "__name__", ""))
    inner = tool.get("function")
    return str((inner if isinstance(inner, Mapping) else tool).get("name", ""))


def in_cap(tools: Iterable[Any], cap: frozenset[str] | None) -> list[Any]:
    """The tools of a request that the cap allows; those whose name is not known are looked at in the answer."""
    return [tool for tool in tools if cap is None or not name_of(tool) or name_of(tool) in cap]


def require_in_cap(tool: str, cap: frozenset[str] | None) -> None:
    if cap is not None and tool not in cap:
        raise Permanent(
            f"tool {tool!r} is beyond the tool cap of this run, which allows {', '.join(sorted(cap)) or 'none'}"
        )
