"""Each toolset that has tools of its own carries out the call that the door lets pass, and no other one. A toolset around it, such
as one whose single tool runs code that calls the others, would pass the door with its own tool and go on to theirs.

A tool is known by the validator of its arguments: every toolset around passes that on, also one that renames or prefixes."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.toolsets import AbstractToolset, WrapperToolset
from pydantic_ai.toolsets.abstract import SchemaValidatorProt, ToolsetTool
from pydantic_core import SchemaValidator

from agents.exceptions import Permanent
from agents.journal.canonical import canonical
from agents.llm.door.shown_arguments import as_json


@dataclass(frozen=True)
class _Call:
    tool: ToolsetTool[Any]
    approved: str | None  # the arguments that a person approved


_passed: ContextVar[_Call | None] = ContextVar("passed", default=None)


@contextmanager
def passing(tool: ToolsetTool[Any], approved: Any = None) -> Iterator[None]:
    """Encloses the execution of a call that passed the door; `approved`: the arguments that a person approved."""
    token = _passed.set(_Call(tool, None if approved is None else canonical(as_json(approved))))
    try:
        yield
    finally:
        _passed.reset(token)


def guarded(toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
    return toolset if isinstance(toolset, _Leaf) else _Leaf(toolset)


@dataclass(frozen=True)
class _Mark:
    """The validator of a tool, with the toolset that has the tool, and its name there."""

    validator: SchemaValidator | SchemaValidatorProt
    leaf: object
    name: str

    def validate_json(self, *arguments: Any, **named: Any) -> Any:
        return self.validator.validate_json(*arguments, **named)

    def validate_python(self, *arguments: Any, **named: Any) -> Any:
        return self.validator.validate_python(*arguments, **named)


@dataclass
class _Leaf(WrapperToolset[Any]):
    mark: object = field(default_factory=object)  # the same in the copies that pydantic-ai makes for each run and step

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        tools = await self.wrapped.get_tools(ctx)
        return {
            name: replace(tool, args_validator=_Mark(tool.args_validator, self.mark, name))
            for name, tool in tools.items()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        passed = _passed.get()
        if passed is None or not self._is(passed.tool.args_validator, name):
            instead = f"tool {passed.tool.tool_def.name!r}" if passed else "no tool"
            raise Permanent(
                f"tool {name!r} is called by a toolset or a capability around it, while the run executes {instead}: it would pass by "
                "the journal, the tool cap and the approvals. Give the model this tool itself, or make the wrapper's tool do the work"
            )
        if passed.approved is not None and passed.approved != canonical(as_json(tool_args)):
            raise Permanent(
                f"a person approved the call of tool {name!r} with other arguments than a toolset around it would make it with. Change "
                "them in the tool itself"
            )
        if isinstance(tool.args_validator, _Mark):
            tool = replace(tool, args_validator=tool.args_validator.validator)
        return await self.wrapped.call_tool(name, tool_args, ctx, tool)

    def visit_and_replace(self, visitor: Any) -> AbstractToolset[Any]:
        return visitor(self)  # type: ignore[no-any-return]

    def _is(self, validator: Any, name: str) -> bool:
        while isinstance(validator, _Mark):
            if validator.leaf is self.mark:
                return validator.name == name
            validator = validator.validator
        return False
