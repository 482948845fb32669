"""Refuse Python sockets while an agent's transaction is open: a row lock held over the network is an outage."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from .exceptions import NetworkRefused

REFUSED = frozenset({"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.sendmsg"})

# A context variable, so that other threads of the process (error trackers, exporters) are left alone.
_refusal: ContextVar[str | None] = ContextVar("network_refusal", default=None)
_installed = False


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in REFUSED and (refusal := _refusal.get()) is not None:
        raise NetworkRefused(refusal.format(event=event))


@contextmanager
def network_refused(agent: str, step: str = "") -> Iterator[None]:
    """Within, a connection attempt from this thread raises NetworkRefused. PostgreSQL's own does not count: libpq is C."""
    global _installed
    if not _installed:
        sys.addaudithook(_audit)
        _installed = True
    who = f"step {step!r} of agent {agent!r} is transactional" if step else f"agent {agent!r} is atomic"
    fix = (
        'Give it effect="read", "idempotent" or "at_most_once".'
        if step
        else "Declare it with durable=True and make the call in a step, or emit an event."
    )
    text = f"{who}: its transaction is open, so it must not use the network (".replace("{", "{{").replace("}", "}}")
    token = _refusal.set(text + "{event}). " + fix)
    try:
        yield
    finally:
        _refusal.reset(token)
