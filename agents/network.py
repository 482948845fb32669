"""Refuse Python sockets while an atomic agent's transaction is open: a row lock held over the network is an outage."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from .exceptions import NetworkRefused

REFUSED = frozenset({"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.sendmsg"})

# A context variable, so that other threads of the process (error trackers, exporters) are left alone.
_agent: ContextVar[str | None] = ContextVar("atomic_agent", default=None)
_installed = False


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in REFUSED and (agent := _agent.get()) is not None:
        raise NetworkRefused(
            f"agent {agent!r} is atomic: its transaction is open, so it must not use the network ({event}). "
            "Declare it with durable=True and make the call in a step, or emit an event."
        )


@contextmanager
def network_refused(agent: str) -> Iterator[None]:
    """Within, a connection attempt from this thread raises NetworkRefused. PostgreSQL's own does not count: libpq is C."""
    global _installed
    if not _installed:
        sys.addaudithook(_audit)
        _installed = True
    token = _agent.set(agent)
    try:
        yield
    finally:
        _agent.reset(token)
