"""The tools that an agent may be given by their names: those of Wakeful, one file each in this package, and those of your apps.

    from agents import tool

    @tool(effect="read")
    def open_tickets(customer: str) -> int:
        "The number of open tickets of a customer."
        return Ticket.objects.filter(customer=customer, closed_at=None).count()

An app's tools are found in its `agents.py`. A tool that needs its run takes `ctx: RunContext[AgentRun]` first: the run is `ctx.deps`,
which `run.llm(…, deps=run)` gives it.
"""

import pkgutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from agents.async_run import AsyncAgentRun
from agents.exceptions import DeclarationError, Permanent
from agents.journal.protocol import Effect
from agents.llm.tools import HOSTS, ToolPolicy
from agents.run import AgentRun

if TYPE_CHECKING:
    from pydantic_ai import RunContext, Tool

PACKAGE = "agents.tools"
_tools: dict[str, "Tool[Any]"] = {}


def tool(
    *,
    effect: Effect = "idempotent",
    dangerous: bool = False,
    trusted: bool = False,
    name: str = "",
    description: str = "",
    expires: str = "",
    requires_approval: bool = False,
    hosts: Callable[[], Iterable[str]] | None = None,
    connection: str = "",
) -> Callable[[Callable[..., Any]], "Tool[Any]"]:
    """Declare a function as a tool, under its own name unless `name` is given. The model gets its docstring, or its
    `description`. `hosts` gives the hosts that it may call; `connection` is the name by which it uses its connection. The other
    options: `agents.llm.tools`. Raises DeclarationError."""
    metadata = {"effect": effect, "dangerous": dangerous, "trusted": trusted}

    def declare(function: Callable[..., Any]) -> "Tool[Any]":
        from pydantic_ai import Tool  # takes most of a second, which a process without tools of its own need not wait

        called = name or function.__name__
        if not (description or function.__doc__):
            raise DeclarationError(f"tool {called!r}: say in its docstring what it does; the model reads that")
        return register(
            Tool(
                function,
                name=called,
                description=description or None,
                metadata={
                    **metadata,
                    **({"expires": expires} if expires else {}),
                    **({HOSTS: hosts} if hosts else {}),
                    **({"connection": connection} if connection else {}),
                },
                requires_approval=requires_approval,
            )
        )

    return declare


def register(tool: "Tool[Any]") -> "Tool[Any]":
    """Add a tool; DeclarationError if another tool has its name, or its metadata makes no sense."""
    known, home = _tools.get(tool.name), tool.function.__module__
    if known is not None and not _is_again(known, tool):
        raise _taken(tool.name, known.function.__module__, home)
    if tool.name in _files() and not home.startswith(f"{PACKAGE}."):
        raise _taken(tool.name, f"{PACKAGE}.{tool.name}", home)
    try:
        ToolPolicy.of(tool.name, tool.metadata)
    except Permanent as error:
        raise DeclarationError(str(error)) from error
    _tools[tool.name] = tool
    return tool


def get(name: str) -> "Tool[Any]":
    """The tool of that name; KeyError if this process has no code for it."""
    _find_built_in()
    return _tools[name]


def named(tools: Iterable[Any]) -> list[Any]:
    """The tools, with those that are given by their names. Permanent: this process has no code for one of these."""
    _find_built_in()
    if unknown := [tool for tool in tools if isinstance(tool, str) and tool not in _tools]:
        raise Permanent(f"there is no tool {', '.join(unknown)}; the tools are: {', '.join(sorted(_tools))}")
    return [_tools[tool] if isinstance(tool, str) else tool for tool in tools]


def all_tools() -> list["Tool[Any]"]:
    """Every tool, by name."""
    _find_built_in()
    return [_tools[name] for name in sorted(_tools)]


def connections_of(tools: Iterable[str]) -> dict[str, list[str]]:
    """The names by which these tools use their connections, each with the names of its tools. Tools that are not registered have
    none."""
    _find_built_in()
    found: dict[str, list[str]] = {}
    for name in sorted(set(tools) & _tools.keys()):
        if called := ToolPolicy.of(name, _tools[name].metadata).connection:
            found.setdefault(called, []).append(name)
    return found


def names() -> frozenset[str]:
    """The names of all tools, without importing the built-in ones: each file has the tool that it is named after."""
    return _files() | _tools.keys()


def run_of(ctx: "RunContext[Any]") -> AgentRun:
    """The run that calls a tool: the sync one, since a tool's effects belong to its step."""
    run = ctx.deps.plain if isinstance(ctx.deps, AsyncAgentRun) else ctx.deps
    if not isinstance(run, AgentRun):
        raise Permanent(f"tool {ctx.tool_name!r} needs its run: call run.llm(…, deps=run)")
    return run


@contextmanager
def refusals_told() -> Iterator[None]:
    """Turn a ValueError, which names a fault of the call's arguments, into a ModelRetry: the model may call again."""
    from pydantic_ai import ModelRetry

    try:
        yield
    except ValueError as error:
        raise ModelRetry(str(error)) from error


@cache
def _find_built_in() -> None:
    """Only now: they import pydantic-ai."""
    for name in _files():
        import_module(f"{PACKAGE}.{name}")


@cache
def _files() -> frozenset[str]:
    """The modules of this package that have tools, named after them."""
    import agents.tools as package

    return frozenset(module.name for module in pkgutil.iter_modules(package.__path__)) - {"toolbox", "http"}


def _is_again(known: "Tool[Any]", tool: "Tool[Any]") -> bool:
    """Is this the same function of a module that was imported again?"""
    before, now = known.function, tool.function
    is_of_module = "<locals>" not in now.__qualname__
    return known is tool or (
        is_of_module and (before.__module__, before.__qualname__) == (now.__module__, now.__qualname__)
    )


def _taken(name: str, there: str, here: str) -> DeclarationError:
    return DeclarationError(f"two tools are called {name!r}: {there} and {here}; rename one")
