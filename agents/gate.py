"""The answer of an agent's gate, a function that is called before a run of the agent begins.

    def gate(run):
        newest = Ticket.objects.filter(urgent=True).order_by("-id").values_list("id", flat=True).first()
        if newest is None or newest == run.last:
            return Quiet("no new urgent ticket")
        return Fire("an urgent ticket", data={"ticket": newest}, state=newest)

    @agent("triage", durable=True, triggers=[on.heartbeat("5m")], gate=gate)
    def triage(run): ...

A gate is plain code that checks facts: it is cheap, calls no model and writes nothing.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agents.exceptions import Permanent
from agents.guards.storable import storable

if TYPE_CHECKING:
    from agents.gate_run import GateRun

MOST_BYTES = 16 * 1024  # of JSON, for the data and the state each: a gate names things, the body reads them
REASON_LENGTH = 500


@dataclass(frozen=True, kw_only=True)
class _Answer:
    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str) or not self.reason:
            raise ValueError(f"{type(self).__name__}({self.reason!r}): give the reason as a non-empty text")


@dataclass(frozen=True)
class Fire(_Answer):
    """Begin the run. `data` goes to its body (`run.fired.data`). `state` is what the next gate sees as `run.last`, once
    the run has succeeded: after a failed run the next gate sees the state of the last success, so it fires again.
    """

    reason: str
    data: Any = None
    state: Any = None


@dataclass(frozen=True)
class Quiet(_Answer):
    """Begin no run, because there is nothing to do. The reason is counted and shown with the event."""

    reason: str


Gate = Callable[["GateRun"], Fire | Quiet]


def checked(answer: object, agent: str) -> Fire | Quiet:
    """Return the answer if it can be stored. Raises Permanent, which names the fault."""
    if not isinstance(answer, (Fire, Quiet)):
        raise Permanent(f"the gate of agent {agent!r} returned {answer!r}; return Fire(reason) or Quiet(reason)")
    reason = str(storable(answer.reason, "the reason of a gate"))[:REASON_LENGTH]
    if isinstance(answer, Quiet):
        return Quiet(reason)
    return Fire(reason, data=_small(answer.data, "data"), state=_small(answer.state, "state"))


def _small(value: Any, name: str) -> Any:
    text = json.dumps(storable(value, f"the {name} of Fire"), ensure_ascii=False)
    size = len(text.encode())
    if size > MOST_BYTES:
        raise Permanent(f"the {name} of Fire has {size:,} bytes as JSON; use at most {MOST_BYTES:,}")
    return json.loads(text)  # as each replay of the body reads it
