"""Settings of tests: the model that replaces those of all LLM agents, and whether requests to providers are allowed."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_ai.models import Model


@dataclass(frozen=True, kw_only=True)
class StandIn:
    model: "Model | None" = None
    may_ask_providers: bool = True


NONE = StandIn()
_switch = ExitStack()
_asking: list[StandIn] = []  # calls under way that may not ask providers
_current: ContextVar[StandIn] = ContextVar("stand_in", default=NONE)


def current() -> StandIn:
    return _current.get()


@contextmanager
def asking() -> Iterator[None]:
    """Encloses the requests of an agent. pydantic-ai has one switch for the process, and calls run in parallel."""
    if current().may_ask_providers:
        yield
        return
    from pydantic_ai.models import override_allow_model_requests

    if not _asking:
        _switch.enter_context(override_allow_model_requests(False))
    _asking.append(current())
    try:
        yield
    finally:
        _asking.pop()
        if not _asking:
            _switch.close()


@contextmanager
def standing_in(stand_in: StandIn) -> Iterator[None]:
    token = _current.set(stand_in)
    try:
        yield
    finally:
        _current.reset(token)
