"""The options of a tool, declared in its metadata.

    @agent.tool(metadata={"effect": "at_most_once", "dangerous": True, "trusted": True})
    def refund(ctx: RunContext, invoice: int, cents: int) -> str: ...

`effect` is that of a step (`agents.journal.protocol.Effect`); without one a tool is "idempotent", and one of an MCP server
"at_most_once". A `dangerous` tool asks for approval in a run that has seen untrusted data; one with `requires_approval=True`
always does. `expires` ("4h") is how long that question stands. What a tool gives is data of strangers unless it is `trusted`: it
is fenced, also as an error, and the run counts as one that has seen untrusted data from the beginning of the call. A tool that is
meant to be called repeatedly until something changes is `polled`: the same result for the same call is then no loop. `connection` is
the name by which the tool uses its connection (`run.connection`).

The tools of a toolset that declares nothing, such as that of an MCP server, get theirs by
`MCPToolset(…).with_metadata(effect="read", trusted=True)`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

from agents.exceptions import Permanent
from agents.journal.protocol import Effect
from agents.kernel.durations import parse_duration

if TYPE_CHECKING:
    from pydantic_ai import ToolDefinition

HOSTS = "hosts"  # in the metadata of a tool: names of hosts that its author allows, or a function that gives them
SHOWN = "shown"  # in the metadata of ApprovalRequired: what the person is shown besides the arguments
QUESTION_STANDS = timedelta(days=1)
FLAGS = ("dangerous", "trusted", "polled")
# What pydantic-ai writes into the metadata of each tool of an MCP server, whatever toolset it came through.
OF_MCP = {"meta", "annotations", "task"}
# pydantic-ai's own tools, by which a model finds tools of the agent: they read nothing else.
OF_THE_FRAMEWORK = {"tool-search", "capability-load"}


@dataclass(frozen=True, kw_only=True)
class ToolPolicy:
    effect: Effect = "idempotent"
    dangerous: bool = False
    trusted: bool = False
    polled: bool = False
    connection: str = ""
    expires: timedelta = QUESTION_STANDS

    @classmethod
    def of(cls, name: str, metadata: Mapping[str, Any] | None) -> "ToolPolicy":
        """Permanent: the metadata declares something that a tool cannot be."""
        said = metadata or {}
        effect = said.get("effect", "at_most_once" if of_mcp(metadata) else "idempotent")
        if effect not in get_args(Effect):
            raise Permanent(f"tool {name!r}: effect {effect!r} is not one of {', '.join(get_args(Effect))}")
        flags = {flag: said.get(flag, False) for flag in FLAGS}
        for flag, value in flags.items():
            if not isinstance(value, bool):
                raise Permanent(f"tool {name!r}: {flag} is True or False, not {value!r}")
        if not isinstance(connection := said.get("connection", ""), str):
            raise Permanent(f"tool {name!r}: connection is a name, not {connection!r}")
        try:
            expires = parse_duration(said["expires"]) if "expires" in said else QUESTION_STANDS
        except ValueError as error:
            raise Permanent(f"tool {name!r}: expires: {error}") from error
        return cls(effect=effect, connection=connection, expires=expires, **flags)

    @classmethod
    def of_tool(cls, tool: "ToolDefinition") -> "ToolPolicy":
        """Permanent: as `of`."""
        if tool.tool_kind in OF_THE_FRAMEWORK:
            return cls(effect="read", trusted=True)
        return cls.of(tool.name, tool.metadata)


def of_mcp(metadata: Mapping[str, Any] | None) -> bool:
    """Is this a tool of an MCP server, which also wrote its description?"""
    return (metadata or {}).keys() >= OF_MCP
