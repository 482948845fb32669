"""Within the body of a run, LLM agents are asked by run.llm alone. `agent.run_sync(…)` and its like would pass by the journal, the
budgets, the tool cap and the approvals of the run, so they are refused, and so are requests by `pydantic_ai.direct`."""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from agents.exceptions import Permanent

MODULE = "pydantic_ai.agent"
# run, run_stream and the like come through `iter`. So do the synchronous ones, but only after they have made an event loop, which stays.
WAYS_IN = ("iter", "realtime", "run_sync", "run_stream_sync")
DIRECT = "pydantic_ai.direct"
# Each of its functions calls this one by its name in the module, also one that was imported from there before the body.
DIRECT_WAY_IN = "_ensure_instruction_parts"

_bodies = 0  # that run in this process: threads that a body starts belong to it
_lock = threading.Lock()
_admission: ContextVar[list[None] | None] = ContextVar("admission", default=None)


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
    """Within, one run of an agent is run.llm's own; what that run begins in its turn is not."""
    token = _admission.set([None])
    try:
        yield
    finally:
        _admission.reset(token)


def _require_admission(agent: Any) -> None:
    admission = _admission.get()
    if admission:
        admission.pop()
    elif _bodies:
        raise Permanent(
            f"LLM agent {getattr(agent, 'name', None) or agent!r} is run by itself inside a run: nothing would be recorded, metered or "
            "asked about. In the body call run.llm(agent, …); to give an agent to another as a tool, use "
            "agents.llm.delegates.Delegate(agent, …) in its toolsets"
        )


def _count(number: int) -> None:
    global _bodies
    with _lock:
        _bodies += number


def _install() -> None:
    """Now if pydantic-ai is imported, else when it is: a body may import it itself."""
    known = [module for name in (MODULE, DIRECT) if (module := sys.modules.get(name)) is not None]
    for module in known:
        _guard(module)
    if len(known) < 2 and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _guard(module: ModuleType) -> None:
    if module.__name__ == DIRECT:
        prepare = getattr(module, DIRECT_WAY_IN, None)  # none while the module is being imported
        if prepare is not None and not hasattr(prepare, "is_guarded"):
            setattr(module, DIRECT_WAY_IN, _guarded_direct(prepare))
        return
    agent = getattr(module, "Agent", None)  # none while the module is being imported
    for name in WAYS_IN:
        way_in = getattr(agent, name, None)
        if way_in is not None and not hasattr(way_in, "is_guarded"):
            setattr(agent, name, _guarded(way_in))


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
                "a model is asked by pydantic_ai.direct inside a run: nothing would be recorded, metered or stopped. Give an agent that "
                "model, and call run.llm(agent, …) in the body"
            )
        return prepare(*arguments, **named)

    enter.is_guarded = True  # type: ignore[attr-defined]
    return enter


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in (MODULE, DIRECT) else None
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
