"""Within the body of a run, only run.llm may run LLM agents. `agent.run_sync(…)` and its like would pass by the
journal, the budgets, the tool cap and the approvals of the run, so they are refused, and so are requests by
`pydantic_ai.direct` and by the methods of a model itself.
"""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from inspect import iscoroutinefunction
from types import ModuleType
from typing import Any

from agents.exceptions import Permanent

MODULE = "pydantic_ai.agent"
# run, run_stream and the like come through `iter`. So do the synchronous ones, but only after they have made an event loop, which stays.
WAYS_IN = ("iter", "realtime", "run_sync", "run_stream_sync")
MODELS = "pydantic_ai.models"
# What each class of models has of its own.
REQUESTS = ("request", "request_stream", "compact_messages", "batch_create")
DIRECT = "pydantic_ai.direct"
# Each of its functions calls this one by its name in the module, also one that was imported from there before the body.
DIRECT_WAY_IN = "_ensure_instruction_parts"

MODULES = (MODULE, MODELS, DIRECT)

_bodies = 0  # that run in this process: threads that a body starts belong to it
_lock = threading.Lock()
_admission: ContextVar[list[None] | None] = ContextVar("admission", default=None)
_metered: ContextVar[bool] = ContextVar("metered", default=False)


@contextmanager
def within_body() -> Iterator[None]:
    """While the body of a run executes."""
    _install()
    _count(1)
    try:
        yield
    finally:
        _count(-1)


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


def is_within_body() -> bool:
    """Does the body of a run execute in this process?"""
    return _bodies > 0


def _require_admission(agent: Any) -> None:
    admission = _admission.get()
    if admission:
        admission.pop()
    elif _bodies:
        raise Permanent(
            f"LLM agent {getattr(agent, 'name', None) or agent!r} is run by itself inside a run: nothing would be recorded, metered or "
            "approved. In the body call run.llm(agent, …); to give an agent to another as a tool, use "
            "agents.llm.delegates.Delegate(agent, …) in its toolsets"
        )


def _count(number: int) -> None:
    global _bodies
    with _lock:
        _bodies += number


def _install() -> None:
    """Now if pydantic-ai is imported, else when it is: a body may import it itself."""
    known = [module for name in MODULES if (module := sys.modules.get(name)) is not None]
    for module in known:
        _guard(module)
    if len(known) < len(MODULES) and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _guard(module: ModuleType) -> None:
    if module.__name__ == DIRECT:
        prepare = getattr(module, DIRECT_WAY_IN, None)  # none while the module is being imported
        if prepare is not None and not hasattr(prepare, "is_guarded"):
            setattr(module, DIRECT_WAY_IN, _guarded_direct(prepare))
        return
    if module.__name__ == MODELS:
        model = getattr(module, "Model", None)
        if model is not None and not hasattr(model, "is_guarded"):
            _guard_models(model)
        return
    # None while the module is being imported. An agent around another has some of the ways in from the abstract one.
    for kind, names in (("AbstractAgent", WAYS_IN[1:]), ("Agent", WAYS_IN)):
        agent = getattr(module, kind, None)
        for name in names:
            way_in = getattr(agent, name, None)
            if way_in is not None and not hasattr(way_in, "is_guarded"):
                setattr(agent, name, _guarded(way_in))


def _guard_models(model: Any) -> None:
    """The classes of models that there are, and those that are defined later."""
    define = model.__init_subclass__.__func__

    def init_subclass(cls: Any, /, **named: Any) -> None:
        define(cls, **named)
        _guard_requests(cls)

    model.__init_subclass__ = classmethod(init_subclass)
    model.is_guarded = True
    classes = [model]
    for cls in classes:
        _guard_requests(cls)
        classes.extend(cls.__subclasses__())


def _guard_requests(cls: Any) -> None:
    for name in REQUESTS:
        ask = vars(cls).get(name)
        if ask is not None and not hasattr(ask, "is_guarded"):
            setattr(cls, name, _guarded_request(ask))


def _guarded_request(ask: Any) -> Any:
    @wraps(ask)
    def enter(self: Any, *arguments: Any, **named: Any) -> Any:
        _require_metered(self)
        return ask(self, *arguments, **named)

    @wraps(ask)
    async def enter_async(self: Any, *arguments: Any, **named: Any) -> Any:
        _require_metered(self)
        return await ask(self, *arguments, **named)

    guarded: Any = enter_async if iscoroutinefunction(ask) else enter
    guarded.is_guarded = True
    return guarded


def _require_metered(model: Any) -> None:
    # A model around that of a run, as for traces, has its attributes.
    if _bodies and not _metered.get() and not getattr(model, "is_metered", False):
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
        if _bodies:
            raise Permanent(
                "a model is called by pydantic_ai.direct inside a run: nothing would be recorded, metered or stopped. Give an agent that "
                "model, and call run.llm(agent, …) in the body"
            )
        return prepare(*arguments, **named)

    enter.is_guarded = True  # type: ignore[attr-defined]
    return enter


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in MODULES else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _guard(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
