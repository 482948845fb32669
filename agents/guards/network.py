"""Refuse Python sockets while an agent's transaction is open: a row lock held over the network is an outage."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from agents.exceptions import NetworkRefused

CALLS = frozenset({"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.sendmsg"})

PROCESSES = frozenset({"subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork", "os.forkpty"})

# A context variable: other threads of the process (error trackers, exporters) may use the network.
_refusal: ContextVar[str | None] = ContextVar("network_refusal", default=None)
_everywhere: str | None = None
_everywhere_refused: frozenset[str] = frozenset()
_installed = False


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in CALLS and (refusal := _refusal.get()) is not None:
        raise NetworkRefused(refusal.format(event=event))
    if event in _everywhere_refused and _everywhere is not None:
        raise NetworkRefused(_everywhere.format(event=event))


def _install() -> None:
    global _installed
    if not _installed:
        sys.addaudithook(_audit)
        _installed = True


@contextmanager
def outside_refused(text: str, *, network: bool = True) -> Iterator[None]:
    """Inside the block, no thread of this process may start a process, or with `network` connect; `{event}` in the text
    names the attempt.
    """
    global _everywhere, _everywhere_refused
    _install()
    _everywhere, _everywhere_refused = text, PROCESSES | CALLS if network else PROCESSES
    try:
        yield
    finally:
        _everywhere, _everywhere_refused = None, frozenset()


@contextmanager
def network_refused(agent: str, step: str = "") -> Iterator[None]:
    """Inside the block, a connection attempt from this thread raises NetworkRefused. PostgreSQL still works: libpq is
    C.
    """
    _install()
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
