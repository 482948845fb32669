"""Within the body of a run, only run.llm may run LLM agents. `agent.run_sync(…)` and its like would pass by the
journal, the budgets, the tool cap and the approvals of the run, so they are refused, and so are requests by
`pydantic_ai.direct` and by the methods of a model itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from inspect import iscoroutinefunction
from types import ModuleType
from typing import Any

from agents.exceptions import Permanent
from agents.guards.bodies import is_within_body
from agents.guards.libraries import guard_methods

MODULE = "pydantic_ai.agent"
# run, run_stream and the like come through `iter`. So do the synchronous ones, but only after they have made an event loop, which stays.
WAYS_IN = ("iter", "realtime", "run_sync", "run_stream_sync")
MODELS = "pydantic_ai.models"
# What each class of models has of its own.
REQUESTS = ("request", "request_stream", "compact_messages", "batch_create")
DIRECT = "pydantic_ai.direct"
# Each of its functions calls this one by its name in the module, also one that was imported from there before the body.
DIRECT_WAY_IN = "_ensure_instruction_parts"

_admission: ContextVar[list[None] | None] = ContextVar("admission", default=None)
_metered: ContextVar[bool] = ContextVar("metered", default=False)


@contextmanager
def admitted() -> Iterator[None]:
    """Inside the block, one run of an LLM agent is allowed, because run.llm makes it; runs that it starts itself are
    not.
    """
    token = _admission.set([None])
    try:
        yield
    finally:
        _admission.reset(token)


@contextmanager
def metered() -> Iterator[None]:
    """While the model of a run passes a request on."""
    before = _metered.get()
    _metered.set(True)
    try:
        yield
    finally:
        _metered.set(before)  # by value: a stream may be closed in another context than it was opened in


def _require_admission(agent: Any) -> None:
    admission = _admission.get()
    if admission:
        admission.pop()
    elif is_within_body():
        raise Permanent(
            f"LLM agent {getattr(agent, 'name', None) or agent!r} is run by itself inside a run: nothing would be recorded, metered or "
            "approved. In the body call run.llm(agent, …); to give an agent to another as a tool, use "
            "agents.llm.delegates.Delegate(agent, …) in its toolsets"
        )


def _guard(module: ModuleType) -> None:
    if module.__name__ == DIRECT:
        prepare = getattr(module, DIRECT_WAY_IN, None)  # none while the module is being imported
        if prepare is not None and not hasattr(prepare, "is_guarded"):
            setattr(module, DIRECT_WAY_IN, _guarded_direct(prepare))
        return
    if module.__name__ == MODELS:
        model = getattr(module, "Model", None)
        if model is not None:
            guard_methods(model, REQUESTS, _guarded_request)
        return
    # None while the module is being imported. An agent around another has some of the ways in from the abstract one.
    for kind, names in (("AbstractAgent", WAYS_IN[1:]), ("Agent", WAYS_IN)):
        agent = getattr(module, kind, None)
        for name in names:
            way_in = getattr(agent, name, None)
            if way_in is not None and not hasattr(way_in, "is_guarded"):
                setattr(agent, name, _guarded(way_in))


def _guarded_request(name: str, ask: Any) -> Any:
    @wraps(ask)
    def enter(self: Any, *arguments: Any, **named: Any) -> Any:
        _require_metered(self)
        return ask(self, *arguments, **named)

    @wraps(ask)
    async def enter_async(self: Any, *arguments: Any, **named: Any) -> Any:
        _require_metered(self)
        return await ask(self, *arguments, **named)

    return enter_async if iscoroutinefunction(ask) else enter


def _require_metered(model: Any) -> None:
    # A model around that of a run, as for traces, has its attributes.
    if is_within_body() and not _metered.get() and not getattr(model, "is_metered", False):
        raise Permanent(
            f"model {model.model_name} is called by itself inside a run: nothing would be recorded, metered or stopped. Give an agent "
            "that model, and call run.llm(agent, …) in the body"
        )


def _guarded(way_in: Any) -> Any:
    @wraps(way_in)
    def enter(self: Any, *arguments: Any, **named: Any) -> Any:
        _require_admission(self)
        return way_in(self, *arguments, **named)

    enter.is_guarded = True  # type: ignore[attr-defined]
    return enter


def _guarded_direct(prepare: Any) -> Any:
    @wraps(prepare)
    def enter(*arguments: Any, **named: Any) -> Any:
        if is_within_body():
            raise Permanent(
                "a model is called by pydantic_ai.direct inside a run: nothing would be recorded, metered or stopped. Give an agent that "
                "model, and call run.llm(agent, …) in the body"
            )
        return prepare(*arguments, **named)

    enter.is_guarded = True  # type: ignore[attr-defined]
    return enter


GUARDS = dict.fromkeys((MODULE, MODELS, DIRECT), _guard)
