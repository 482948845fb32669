"""In a test: the model that stands in for those of all LLM agents, and whether a provider may be asked."""

from collections.abc import Iterator
from contextlib import contextmanager
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
_current: ContextVar[StandIn] = ContextVar("stand_in", default=NONE)


def current() -> StandIn:
    return _current.get()


@contextmanager
def standing_in(stand_in: StandIn) -> Iterator[None]:
    token = _current.set(stand_in)
    try:
        yield
    finally:
        _current.reset(token)
