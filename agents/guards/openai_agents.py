"""Within the body of a run, agents of openai-agents run in `run.openai`, or whole in a step. `Runner.run(…)` by itself would pass by the
journal and the budgets of the run, so it is refused, and so is a request by the methods of a model.

In `run.openai` each request to a model, whatever its class, goes through the call, which makes it a step; so does each call of a tool of
an MCP server. The SDK's traces go to OpenAI unless the environment says otherwise: from workers they do not.
"""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import wraps
from types import ModuleType
from typing import Any, Protocol

from agents.exceptions import Permanent
from agents.guards.bodies import is_within_body
from agents.guards.libraries import Guard, guard_methods
from agents.guards.provider_loop import sent, streamed

SDK = "agents"  # its import name, which in a tree is this package's own
IS_REACHABLE = __name__.partition(".")[0] != SDK
TRACING = "OPENAI_AGENTS_DISABLE_TRACING"
GIVEN = ("system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs", "tracing")
WAYS_IN = ("run", "run_sync", "run_streamed")

Given = Mapping[str, Any]  # the arguments of a request, by name


class Call(Protocol):
    """A call of `run.openai`."""

    def nested(self, agent: Any, input: Any, named: Given) -> AbstractContextManager[None]:
        """While an agent runs in the call, with these options."""

    async def response(self, model: Any, ask: Callable[..., Any], given: Given) -> Any:
        """`ask` is the method of the model."""

    def stream(self, model: Any, ask: Callable[..., Any], given: Given) -> AsyncIterator[Any]: ...

    async def tool(self, server: Any, ask: Callable[..., Any], name: str, arguments: Any, named: Given) -> Any: ...


# In whose code this thread or task is.
calling: ContextVar[Call | None] = ContextVar("openai_call", default=None)
is_within_step: Callable[[], bool] = lambda: False  # noqa: E731  (a port: agents.journal.begun)


def ask_with(ask: Callable[..., Any], model: Any, given: Given) -> Any:
    rest = {name: value for name, value in given.items() if name not in GIVEN}
    return ask(model, *(given[name] for name in GIVEN), **rest)


def _guard_runner(module: ModuleType) -> None:
    runner = getattr(module, "AgentRunner", None)
    for name in WAYS_IN if runner is not None else ():
        way_in = getattr(runner, name)
        if not hasattr(way_in, "is_guarded"):
            guarded = _guarded_run(way_in) if name == "run" else _guarded_way_in(way_in, is_lane=name != "run_sync")
            guarded.is_guarded = True
            setattr(runner, name, guarded)


def _guarded_run(run: Any) -> Any:
    @wraps(run)
    async def enter(self: Any, starting_agent: Any, input: Any, **named: Any) -> Any:
        call = _call(f"Runner.run of {_name_of(starting_agent)}")
        if call is None:
            return await run(self, starting_agent, input, **named)
        with call.nested(starting_agent, input, named):
            return await run(self, starting_agent, input, **named)

    return enter


def _guarded_way_in(way_in: Any, *, is_lane: bool) -> Any:
    @wraps(way_in)
    def enter(self: Any, starting_agent: Any, input: Any, **named: Any) -> Any:
        call = _call(f"Runner.{way_in.__name__} of {_name_of(starting_agent)}")
        if call is None or not is_lane:
            return way_in(self, starting_agent, input, **named)
        with call.nested(starting_agent, input, named):  # the task that it begins has this context
            return way_in(self, starting_agent, input, **named)

    return enter


def _guard_models(module: ModuleType) -> None:
    if model := getattr(module, "Model", None):
        os.environ.setdefault(TRACING, "1")
        guard_methods(model, ("get_response", "stream_response"), _guarded_request)


def _guarded_request(name: str, ask: Any) -> Any:
    @wraps(ask)
    async def get_response(self: Any, *arguments: Any, **named: Any) -> Any:
        call = _call(f"model {type(self).__name__}")
        if call is None:
            return await sent(ask(self, *arguments, **named))
        return await call.response(self, ask, {**dict(zip(GIVEN, arguments, strict=False)), **named})

    @wraps(ask)
    def stream_response(self: Any, *arguments: Any, **named: Any) -> Any:
        call = _call(f"model {type(self).__name__}")
        if call is None:
            return streamed(ask(self, *arguments, **named))
        return call.stream(self, ask, {**dict(zip(GIVEN, arguments, strict=False)), **named})

    return get_response if name == "get_response" else stream_response


def _guard_servers(module: ModuleType) -> None:
    if server := getattr(module, "MCPServer", None):
        guard_methods(server, ("call_tool",), _guarded_tool)


def _guarded_tool(name: str, ask: Any) -> Any:
    @wraps(ask)
    async def call_tool(self: Any, tool_name: str, arguments: Any, *more: Any, **named: Any) -> Any:
        call = calling.get()
        if call is None or is_within_step():
            return await ask(self, tool_name, arguments, *more, **named)
        return await call.tool(self, ask, tool_name, arguments, {**({"meta": more[0]} if more else {}), **named})

    return call_tool


def _call(what: str) -> Call | None:
    """The call that this code is in. Permanent: it is in a body, and neither in a call nor in a step."""
    if is_within_step():
        return None
    call = calling.get()
    if call is None and is_within_body():
        raise Permanent(
            f"{what} by itself inside a run: nothing would be recorded, metered or stopped. In the body call run.openai(agent, input); a "
            'whole Runner.run may also be one step: run.step(…, effect="idempotent")'
        )
    return call


def _name_of(agent: Any) -> str:
    return repr(getattr(agent, "name", "") or type(agent).__name__)


GUARDS: Mapping[str, Guard] = (
    {f"{SDK}.run": _guard_runner, f"{SDK}.models.interface": _guard_models, f"{SDK}.mcp.server": _guard_servers}
    if IS_REACHABLE
    else {}
)
