"""The body of an atomic agent is one transaction: it holds every lock it takes until it ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

from agents.exceptions import LockRefused
from agents.guards.network import network_refused

P = ParamSpec("P")
T = TypeVar("T")

# A context variable: it applies to this thread only.
_agent: ContextVar[str] = ContextVar("atomic_body", default="")


@contextmanager
def atomic_body(agent: str) -> Iterator[None]:
    """Inside the block, refuse network access and services that take locks: the body of this agent runs in its
    transaction.
    """
    token = _agent.set(agent)
    try:
        with network_refused(agent):
            yield
    finally:
        _agent.reset(token)


def not_in_atomic_body(service: Callable[P, T]) -> Callable[P, T]:
    """Decorator of a service that takes locks which dispatch, other runs or edits need: LockRefused in an atomic body."""

    @wraps(service)
    def refused_in_atomic_body(*args: P.args, **kwargs: P.kwargs) -> T:
        if agent := _agent.get():
            raise LockRefused(agent, service.__name__)
        return service(*args, **kwargs)

    return refused_in_atomic_body
