"""Signs of another Beat on the same tasks: `last_run_at` of one that this Beat fires was moved while this Beat ran.

Noticed where a schedule is fired, which reads that column anyway; some minutes late, as a DatabaseScheduler writes it down every three
minutes. A trouble of this process for an hour."""

import time
from datetime import datetime

from runs.processes.lease import Trouble

FOR = 3600.0  # seconds
NAMED = 5

_begun: datetime | None = None
_seen: dict[str, tuple[float, float]] = {}  # by name: when it was noticed first and last, in terms of time.monotonic()


def begin(now: datetime) -> None:
    """This Beat runs; what was fired before may be another's that has stopped."""
    global _begun
    _begun = _begun or now


def note(name: str, at: datetime) -> None:
    """Another scheduler has fired this at that time."""
    if _begun is not None and at > _begun and (name in _seen or len(_seen) < 10 * NAMED):
        first, _ = _seen.get(name, (time.monotonic(), 0.0))
        _seen[name] = (first, time.monotonic())


def troubles() -> dict[str, Trouble]:
    if not _seen:
        return {}
    now = time.monotonic()
    for name in [name for name, (_, last) in _seen.items() if now - last > FOR]:
        del _seen[name]
    if not _seen:
        return {}
    named = sorted(_seen, key=lambda name: _seen[name])
    more = " and others" if len(named) > NAMED else ""
    lasted = now - min(first for first, _ in _seen.values())
    return {"second-beat": Trouble(lasted=lasted, error=f"{', '.join(named[:NAMED])}{more}")}
