"""The body of an atomic agent is one transaction: every lock that is taken in it is held until it ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

from agents.exceptions import LockRefused
from agents.guards.network import network_refused

P = ParamSpec("P")
T = TypeVar("T")

# A context variable, so that other threads of the process are left alone.
_agent: ContextVar[str] = ContextVar("atomic_body", default="")


@contextmanager
def atomic_body(agent: str) -> Iterator[None]:
    """Within, the body of this agent runs in its transaction: nothing in it waits for the network, or keeps others waiting."""
    token = _agent.set(agent)
    try:
        with network_refused(agent):
            yield
    finally:
        _agent.reset(token)


def not_in_atomic_body(service: Callable[P, T]) -> Callable[P, T]:
    """For a service that locks what dispatch, other runs or edits need: called in an atomic body it raises LockRefused."""

    @wraps(service)
    def refused_in_atomic_body(*args: P.args, **kwargs: P.kwargs) -> T:
        if agent := _agent.get():
            raise LockRefused(agent, service.__name__)
        return service(*args, **kwargs)

    return refused_in_atomic_body
