"""The body of prompt agents: one turn like that of a heartbeat, with tools of the toolbox and an answer that people
chose.

A tick of a schedule looks at the items that are due. Any other event, a manual fire or a trial looks at all of them, and the event
is data of strangers for the model.
"""

import json
from typing import TYPE_CHECKING, Any

from agents.agent import Agent
from agents.checklists.run_checklist import DueItem
from agents.exceptions import Permanent
from agents.gate import Fire, Quiet
from agents.gate_run import GateRun
from agents.heartbeats.watch import Watch
from agents.kernel.connecting import MayUse
from agents.kernel.effects import Urgency
from agents.kernel.reserved_types import TICK, WAKEUP
from agents.prompt_agents.definition import Definition
from agents.reminders import FIELD
from agents.run import AgentRun, Event

if TYPE_CHECKING:
    from agents.heartbeats.verdict import Verdict

OF_CLOCKS = (TICK, WAKEUP)
# The data that a wake has of the tick or of the reminder before it.
OF_TICK = frozenset({"schedule", "nominal", "due", FIELD})
MOST_CHARACTERS = 50_000  # of the events of a run, in its prompt
DECISION_STANDS = "1d"
URGENCIES: tuple[Urgency, ...] = ("low", "normal", "high")


def agent_of(name: str, definition: Definition, version: str = "") -> Agent:
    """The durable agent that a version of a prompt agent is. `version` is the stored one: another version of Wakeful, whose
    definitions have other fields, would compute another."""
    body = Body(name, definition, version)
    may_use = MayUse(names=definition.connections, acts_for=definition.acts_for)
    return Agent(name=name, body=body, durable=True, hold_key=True, gate=body.ask, connections=may_use)


class Body(Watch):
    def __init__(self, name: str, definition: Definition, version: str = "") -> None:
        super().__init__(
            name,
            model=definition.model or None,
            tools=definition.tools,
            session=definition.session,
            by_thread=definition.by_thread,
            instructions=definition.instructions,
        )
        self.definition = definition
        self.version = version or definition.version

    def ask(self, run: GateRun) -> Fire | Quiet:
        others = [event for event in run.events if not _is_of_clock(event)]
        if not others or run.checklist.state().silenced_until:
            return super().ask(run)
        return Fire(f"an event of type {others[-1].type}")

    def items(self, run: AgentRun) -> list[DueItem]:
        return run.checklist.due() if self.needs_items(run) else run.checklist.awake()

    def needs_items(self, run: AgentRun) -> bool:
        is_of_clock = bool(run.events) and all(_is_of_clock(event) for event in run.events)
        return is_of_clock and not run.checklist.is_empty()

    def found(self, run: AgentRun) -> Any:
        given = [_told(event) for event in run.events if _has_data(event)]
        if not run.events and run.input is not None:
            given = [run.input]  # of the run that spawned it
        return _cut(given) if given else None

    def tell(self, run: AgentRun, verdict: "Verdict") -> None:
        said = self._decided(run, {"text": verdict.text, "urgency": verdict.urgency})
        if said is None:
            return
        if self.definition.notify:
            run.notify(said["text"], urgency=said["urgency"], to=self.definition.notify_to)
        if self.definition.emit:
            items = [one.model_dump() for one in verdict.items]
            run.emit(self.definition.emit, {"agent": self.name, **said, "items": items})

    def _decided(self, run: AgentRun, said: dict[str, Any]) -> dict[str, Any] | None:
        """The text and urgency to send, as a person may have edited them; None: a person denied it, or the approval expired."""
        if not self.definition.ask_first:
            return said
        doing = [f"emit an event {self.definition.emit}"] if self.definition.emit else []
        if self.definition.notify:
            doing.insert(0, "notify " + (", ".join(self.definition.notify_to) or "people"))
        answer = run.ask_approval(
            f"May {self.name} {' and '.join(doing)}?", detail=said["text"], arguments=said, expires=DECISION_STANDS
        )
        if not answer:
            return None
        return _checked(answer.arguments, self.name)


def _is_of_clock(event: Event) -> bool:
    return event.type in OF_CLOCKS


def _has_data(event: Event) -> bool:
    """Has the event data from outside? A wake carries the data of the event before it."""
    if event.type == WAKEUP and isinstance(event.data, dict):
        return not event.data.keys() <= OF_TICK
    return event.type != TICK and event.data is not None


def _told(event: Event) -> dict[str, Any]:
    return {"type": event.type, "source": event.source, "subject": event.subject, "data": event.data}


def _cut(given: list[Any]) -> Any:
    text = json.dumps(given, ensure_ascii=False, indent=1, default=str)
    if len(text) <= MOST_CHARACTERS:
        return given
    return f"{text[:MOST_CHARACTERS]}\n(cut off after {MOST_CHARACTERS:,} of {len(text):,} characters)"


def _checked(edited: Any, agent: str) -> dict[str, Any]:
    """A person may have edited what is sent. Permanent: it cannot be sent so."""
    said = edited if isinstance(edited, dict) else {}
    text, urgency = said.get("text"), said.get("urgency")
    if not isinstance(text, str) or not text.strip() or urgency not in URGENCIES:
        raise Permanent(
            f'prompt agent {agent!r}: the approved arguments are {edited!r}; they must be {{"text": "…", "urgency": "low", '
            '"normal" or "high"}'
        )
    return {"text": text, "urgency": urgency}
