"""OpenTelemetry, where an operator has switched it on: spans of events, dispatches, runs, attempts, steps, models and tools.
Off, it costs a comparison, and nothing of the SDK is imported.

A trace is a causal chain, and its id that of the chain's first event. The spans of an event, a dispatch, a run and an attempt
have ids that are made of what they stand for: any process that continues a run, after a crash or a wait of days,
derives parent ids without a lookup, and recording a span twice has no effect.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from agents.telemetry.sdk import Sdk

_sdk: "Sdk | None" = None


@dataclass(frozen=True)
class Span:
    """Which span is meant: its trace and what it stands for, such as ("attempt", its run, its epoch)."""

    trace: UUID
    what: tuple[object, ...]

    @classmethod
    def of(cls, trace: UUID, kind: str, *what: object) -> "Span":
        """The span of such a thing: "event" and its id, "dispatch" and the event's, "run", "attempt" with its epoch."""
        return cls(trace, (kind, *what))

    @property
    def id(self) -> int:
        digest = sha256(":".join(map(str, self.what)).encode()).digest()
        return int.from_bytes(digest[:8]) or 1


def switch_on(*, service: str, endpoint: str, headers: str, keeps_content: bool) -> None:
    """Make this process send its spans and metrics to an OTLP endpoint from now on."""
    global _sdk
    from agents.telemetry.sdk import Sdk

    _sdk = Sdk(service=service, endpoint=endpoint, headers=headers, keeps_content=keeps_content)


def switch_off() -> None:
    global _sdk
    if _sdk:
        _sdk.shut_down()
    _sdk = None


def is_on() -> bool:
    return _sdk is not None


def record(
    span: Span,
    name: str,
    *,
    parent: Span | None,
    began: datetime,
    ended: datetime,
    attributes: Mapping[str, Any],
    error: str = "",
    remote: str = "",
    is_consumer: bool = False,
) -> None:
    """Tell of something that is over. `remote` is the `traceparent` of what caused it elsewhere, which is linked."""
    if _sdk:
        _sdk.record(span, name, parent, began, ended, attributes, error, remote, is_consumer)


def within(span: Span) -> AbstractContextManager[None]:
    """Parent for spans opened inside the block. The span itself is recorded later."""
    return _sdk.within(span) if _sdk else nullcontext()


def doing(name: str, **attributes: Any) -> AbstractContextManager[None]:
    """A span of what is done inside."""
    return _sdk.doing(name, attributes) if _sdk else nullcontext()


def instrumentation() -> Sequence[Any]:
    """Instrumentation for pydantic-ai: spans for agents, model requests and tools. Replayed results create no spans."""
    return _sdk.instrumentation() if _sdk else ()


def count_seconds(name: str, seconds: float, **attributes: str) -> None:
    """A duration, for the metrics."""
    if _sdk:
        _sdk.count_seconds(name, seconds, attributes)


def flush() -> None:
    if _sdk:
        _sdk.flush()
