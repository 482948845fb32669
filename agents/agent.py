from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from hashlib import sha256
from inspect import getsource
from typing import TYPE_CHECKING, Any, Literal

from .durations import parse_duration
from .exceptions import DeclarationError
from .on import TriggerDeclaration
from .registry import register

if TYPE_CHECKING:
    from .run import AgentRun

Body = Callable[["AgentRun"], Any]
Overlap = Literal["allow", "skip", "queue_one", "queue", "cancel_previous"]


@dataclass(frozen=True, kw_only=True)
class Agent:
    """A named function that runs wake, with the policy its author declared for it."""

    name: str
    body: Body
    triggers: tuple[TriggerDeclaration, ...] = ()
    key: str = ""
    overlap: Overlap | None = None
    input: Mapping[str, str] = field(default_factory=dict)
    queue: str = "default"
    priority: int = 5
    timeout: timedelta | None = None
    retries: int = 3
    pause_after: int = 10

    def __call__(self, run: "AgentRun") -> Any:
        return self.body(run)

    @cached_property
    def version(self) -> str:
        """A fingerprint of the body's source; says which code a run met. Empty where there is no source."""
        try:
            return sha256(getsource(self.body).encode()).hexdigest()[:12]
        except (OSError, TypeError):
            return ""

    @property
    def doc(self) -> str:
        return (self.body.__doc__ or "").strip()


def agent(
    name: str,
    *,
    triggers: Sequence[TriggerDeclaration] = (),
    key: str = "",
    overlap: Overlap | None = None,
    input: Mapping[str, str] | None = None,
    queue: str = "default",
    priority: int = 5,
    timeout: str | float | timedelta | None = None,
    retries: int = 3,
    pause_after: int = 10,
) -> Callable[[Body], Agent]:
    """Declare an agent. Its body is one transaction: its writes, result, emitted events and notifications commit together.

    `key` is CEL over `event`; runs of one key do not overlap. `overlap` says what a new event does meanwhile
    (default: "skip" for schedules, "queue" where a key is given, else "allow"). `priority` 0 is most urgent, 9 least.
    `timeout` ("30s") defaults to WAKEFUL_ATOMIC_TIMEOUT. `retries` come after the first attempt. The trigger pauses
    after `pause_after` failed runs in a row (0: never). Raises DeclarationError.
    """
    if not 0 <= priority <= 9:
        raise DeclarationError(f"agent {name!r}: priority {priority} is not between 0 (most urgent) and 9")
    if retries < 0 or pause_after < 0:
        raise DeclarationError(f"agent {name!r}: retries and pause_after must not be negative")

    def declare(body: Body) -> Agent:
        return register(
            Agent(
                name=name,
                body=body,
                triggers=tuple(triggers),
                key=key,
                overlap=overlap,
                input=dict(input or {}),
                queue=queue,
                priority=priority,
                timeout=None if timeout is None else parse_duration(timeout),
                retries=retries,
                pause_after=pause_after,
            )
        )

    return declare
