"""Run an agent in a test: no broker, no worker, no rows but the ones your agent writes.

    @pytest.mark.django_db
    def test_a_digest_counts_what_is_new() -> None:
        Ticket.objects.create(digested=False)

        done = run_agent(ticket_digest)

        assert done.result == {"count": 1}
        assert [event.type for event in done.emitted] == ["tickets.digested"]
        assert not done.notifications

The body runs as in production: in a transaction (a savepoint of your test's), without network, on an event with your
values. An exception of the body reaches your test, and the agent's writes are rolled back.

A durable agent runs to its end in one call. Its steps really run, each transactional one in a savepoint without network;
outside of them the agent may only read. Sleeping takes no time. `waits` gives the result of each other wait, by its key in
the journal; if one is missing, the error names its key:

    def test_a_call_waits_for_approval() -> None:
        done = run_agent(onboarding, data={"id": 7}, waits={"event invoice.paid#1": None, "approval#1": "approved"})

        assert done.steps == ["welcome", "notify#1"]

A wait for an event or a signal gets its data, or None for a timeout; an approval gets "approved", "denied", "expired" or an
`Answer`; children get a list with the result (or an `Ended`) of each, or None for a timeout.

Pass a journal to test how a run goes on after a crash:

    journal = Journal()
    with pytest.raises(Crashed):
        run_agent(onboarding, data={"id": 7}, journal=journal, crash_after="welcome")
    done = run_agent(onboarding, journal=journal, waits=…)

    assert "welcome" not in done.steps  # it was done before

With the same journal again, no step runs: `run_agent(onboarding, journal=journal).steps == []`; `assert_replays(done)` checks
that. If the code does not fit its journal, Parked is raised with the message that the run's page shows.

A test sends no request to a model provider without `may_ask_providers=True`. Give the answers instead:

    from pydantic_ai.models.test import TestModel

    done = run_agent(triage, data={"text": "It crashes"}, model=TestModel(custom_output_args={"urgent": True}))

A gate is tested without a run:

    assert ask_gate(triage, last=7) == Quiet("no new urgent ticket")
    done = run_agent(triage, fired=Fire("an urgent ticket", data={"ticket": 8}))

`model` is any model of pydantic-ai, such as TestModel or FunctionModel, and replaces those of all LLM agents of the run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from django.db import connection, transaction

from agents.guards.atomic import atomic_body
from agents.guards.effects import check_effects
from agents.guards.sql_writes import gate_writing_refused, refuse_write, text_of
from agents.guards.storable import storable
from agents.journal import engine
from agents.journal.ends import Interrupted, Lost, Parked, Released, TriedAgain, Waiting
from agents.journal.entries import NewWait, RecordedStep, RecordedWait, StepEntry
from agents.journal.in_memory import KeptWait, MemoryStore
from agents.journal.protocol import (
    EXPIRED,
    Answer,
    ApprovalRequest,
    ChildrenRequest,
    Ended,
    EventRequest,
    TimeRequest,
    WaitRequest,
)
from agents.kernel.effects import Child, Effects, Emission, Notice, Pace, Reply, Standing, Wake
from agents.kernel.reply_place import ReplyPlace
from agents.kernel.reserved_types import SIGNAL
from agents.kernel.tool_cap import narrowed
from agents.llm.providers.stand_in import StandIn, standing_in

from .agent import Agent
from .async_run import AsyncAgentRun
from .gate import Fire, Quiet, checked
from .gate_run import GateRun
from .run import AgentRun, Event

if TYPE_CHECKING:
    from pydantic_ai.models import Model

__all__ = ["AgentResult", "Crashed", "Journal", "Parked", "Unanswered", "ask_gate", "assert_replays", "run_agent"]

DECISIONS = ("approved", "edited", "denied", "expired")


class Crashed(BaseException):
    """The process died at the step named by `crash_after`."""


class Unanswered(BaseException):
    """The agent waits for something that `waits` does not answer; the message names the key."""


class Journal:
    """The journal of a durable run. Pass it to run_agent again to go on with that run, on the event of its first call."""

    def __init__(self) -> None:
        self.steps: dict[str, RecordedStep] = {}  # and values
        self.waits: dict[str, RecordedWait] = {}
        self.run: dict[str, Any] = {}  # id, agent, trigger, input and event of the run
        self.elapsed = timedelta()  # slept so far

    @property
    def keys(self) -> list[str]:
        entries: list[RecordedStep | RecordedWait] = [*self.steps.values(), *self.waits.values()]
        return [entry.key for entry in sorted(entries, key=lambda entry: entry.position)]


@dataclass(frozen=True, kw_only=True)
class AgentResult:
    """The effects of a run besides the agent's own writes. After a crash, only what the run did since then; `steps` are the
    keys of the steps that ran, in order."""

    result: Any
    emitted: list[Emission]
    notifications: list[Notice]
    replies: list[Reply] = field(default_factory=list)
    children: list[Child] = field(default_factory=list)
    wakes: list[Wake] = field(default_factory=list)
    schedules: list[Standing] = field(default_factory=list)
    pace: Pace | None = None
    steps: list[str] = field(default_factory=list)
    journal: Journal = field(default_factory=Journal)
    agent: Agent

    @property
    def is_tainted(self) -> bool:
        """Has the run seen untrusted data?"""
        return bool(self.journal.run["is_tainted"])


def run_agent(
    agent: Agent,
    *,
    data: Any = None,
    type: str = "test.event",
    source: str = "test",
    subject: str = "",
    time: datetime | None = None,
    input: Any = None,
    trigger: str = "",
    attempt: int = 1,
    run_id: UUID | None = None,
    is_tainted: bool = False,
    from_strangers: bool = False,
    reply_place: ReplyPlace | None = None,
    fired: Fire | None = None,
    waits: Mapping[str, Any] | None = None,
    journal: Journal | None = None,
    crash_after: str = "",
    model: "Model | None" = None,
    may_ask_providers: bool = False,
) -> AgentResult:
    """Run the agent on one event with this `data`; `input` replaces the result of the trigger's input mapping.
    `is_tainted`: a run that had seen untrusted data emitted the event; `from_strangers`: strangers may write it;
    `reply_place`: where `run.reply` answers it. `fired` is the answer of the gate, which is not called here; `ask_gate` calls it.

    For durable agents: `waits` are the results of waits, by key; `journal` is the run to go on with; Crashed is raised after
    the commit of the step with the key `crash_after`; `model` replaces all models; `may_ask_providers` allows requests to
    providers. Raises Unanswered, Parked, and the exceptions of the agent.
    """
    if not agent.durable and (waits or journal or crash_after):
        raise ValueError(
            f"agent {agent.name!r} is atomic: it has no steps, waits or journal. Declare it with durable=True"
        )
    journal = journal if journal is not None else Journal()
    event = Event(
        id=uuid4(),
        type=type,
        source=source,
        subject=subject,
        time=time or datetime.now(UTC),
        data=data,
        is_tainted=is_tainted,
        from_strangers=from_strangers,
    )
    journal.run = journal.run or {
        "id": run_id or uuid4(),
        "agent": agent.name,
        "trigger": trigger or agent.name,
        "input": input,
        "read_events": lambda: [event],
        "tools": narrowed(agent.tools, None),
        "may_use": agent.connections,
        "is_tainted": is_tainted,
        "from_strangers": lambda: from_strangers,
        "fired": fired,
        **({"find_place": lambda event_id: reply_place} if reply_place else {}),
    }
    if agent.durable:
        with standing_in(StandIn(model=model, may_ask_providers=may_ask_providers)):
            return _run_durable(agent, attempt, journal, waits or {}, crash_after)
    from agents.models import taint_written

    run = AgentRun(**journal.run, attempt=attempt)
    with transaction.atomic():
        with atomic_body(agent.name):
            result = agent(run)
        journal.run["is_tainted"] = run.is_tainted
        storable(result, "its result")
        check_effects(run.effects)
        if run.is_tainted:
            run.effects.taint()
        taint_written(agent.name, **run.effects.tainted)
    return _result(agent, result, run.effects, [], journal)


def ask_gate(
    agent: Agent,
    *,
    data: Any = None,
    type: str = "test.event",
    source: str = "test",
    time: datetime | None = None,
    input: Any = None,
    trigger: str = "",
    last: Any = None,
    is_tainted: bool = False,
) -> Fire | Quiet:
    """The answer of the agent's gate to an event with this `data`; `last` is the state that the last success kept. As in production,
    the gate may not write. Raises the exceptions of the gate."""
    if agent.gate is None:
        raise ValueError(f"agent {agent.name!r} has no gate")
    event = Event(
        id=uuid4(), type=type, source=source, time=time or datetime.now(UTC), data=data, is_tainted=is_tainted
    )
    run = GateRun(
        agent=agent.name,
        trigger=trigger or agent.name,
        input=input,
        last=last,
        read_events=lambda: [event],
        read_now=lambda: datetime.now(UTC),
        is_tainted=is_tainted,
    )
    with connection.execute_wrapper(_every_write_refused):
        return checked(agent.gate(run), agent.name)


def assert_replays(done: AgentResult) -> None:
    """Raises AssertionError if the agent, run again on its journal, runs a step or gives another result. No model is
    called.
    """
    again = _run_durable(done.agent, 1, done.journal, {}, "")
    if again.steps:
        raise AssertionError(f"a replay does {again.steps}, which the journal should have: keys differ from run to run")
    if again.result != done.result:
        raise AssertionError(f"a replay gives {again.result!r}, and the run gave {done.result!r}")


def _run_durable(
    agent: Agent, attempt: int, journal: Journal, waits: Mapping[str, Any], crash_after: str
) -> AgentResult:
    store = _TestStore(agent.name, journal, waits, crash_after)
    while True:
        execution = engine.Journal(store)
        run = AgentRun(**journal.run, attempt=attempt, journal=execution)
        try:
            with connection.execute_wrapper(_writes_refused(execution, store)):
                result = storable(agent(AsyncAgentRun(run, execution) if agent.is_async else run), "its result")
            execution.require_end()
            break
        except BaseException as error:
            end = execution.end or error  # the body may have caught the interruption
            if isinstance(end, Interrupted):
                store.write(end.entries, Effects(), at="")
            journal.run["is_tainted"] = run.is_tainted
            match end:
                case TriedAgain():
                    continue
                case Waiting():
                    store.keep(end.wait, is_over=False)
                    raise _unanswered(end.wait) from None
                case Released():
                    raise Crashed(f"after step {crash_after!r}, as requested") from None
                case Lost():
                    raise end.error from None
            if end is error:
                raise
            raise end from None
    store.write(execution.pending, Effects(), at="")
    if crash_after:
        done = ", ".join(store.done) or "none"
        raise ValueError(f"crash_after={crash_after!r}: the agent ended without that step; its steps were {done}")
    journal.run["is_tainted"] = run.is_tainted
    return _result(agent, result, store.left, store.done, journal)


def _result(agent: Agent, result: Any, effects: Effects, steps: list[str], journal: Journal) -> AgentResult:
    return AgentResult(
        result=result,
        emitted=effects.emissions,
        notifications=effects.notices,
        replies=effects.replies,
        children=effects.children,
        wakes=effects.wakes,
        schedules=effects.standings,
        pace=effects.paces[-1] if effects.paces else None,
        steps=steps,
        journal=journal,
        agent=agent,
    )


class _TestStore(MemoryStore):
    def __init__(self, agent: str, journal: Journal, answers: Mapping[str, Any], crash_after: str) -> None:
        super().__init__(agent, journal.steps, journal.waits)
        self.done: list[str] = []  # the steps, in order
        self._journal = journal
        self._answers = answers
        self._crash_after = crash_after

    def write(self, entries: Sequence[StepEntry], effects: Effects, *, at: str) -> bool:
        super().write(entries, effects, at=at)
        done = [entry.key for entry in entries if entry.is_progress]
        self.done += done
        return self._crash_after in done

    def draw(self, key: str, draw: Callable[[], Any]) -> Any:
        drawn = draw()
        if key.startswith("now#"):
            return (datetime.fromisoformat(drawn) + self._journal.elapsed).isoformat()
        return drawn

    def answer(self, wait: NewWait) -> KeptWait | None:
        request, came = wait.request, None
        if isinstance(request, TimeRequest):
            self._sleep(request)
        elif wait.key in self._answers:
            came = _came(wait.key, request, self._answers[wait.key])
        else:
            return None
        if came is EXPIRED and isinstance(request, (EventRequest, ChildrenRequest)):
            self._journal.elapsed += request.timeout or timedelta()
        return self.keep(wait, is_over=True, came=came)

    def _sleep(self, request: TimeRequest) -> None:
        slept = request.duration or timedelta()
        if request.until:
            slept = max(request.until - (datetime.now(UTC) + self._journal.elapsed), timedelta())
        self._journal.elapsed += slept


def _writes_refused(journal: engine.Journal, store: MemoryStore) -> Callable[..., Any]:
    """Refuse writes as PostgreSQL does in production; the transaction of a test would allow them."""

    def refused(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        if not (journal.may_write or store.is_writing):
            refuse_write(text_of(sql))
        return execute(sql, params, many, context)

    return refused


def _every_write_refused(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
    refuse_write(text_of(sql), gate_writing_refused)
    return execute(sql, params, many, context)


def _came(key: str, request: WaitRequest, said: Any) -> Any:
    match request:
        case EventRequest():
            return EXPIRED if said is None else _event(request, said)
        case ApprovalRequest():
            return said if isinstance(said, Answer) else _decided(key, request, said)
        case ChildrenRequest() if said is not None:
            if len(said) != len(request.children):
                raise ValueError(f"waits[{key!r}]: {len(said)} answers for {len(request.children)} children")
            return [end if isinstance(end, Ended) else Ended(status="succeeded", result=end) for end in said]
    return EXPIRED


def _decided(key: str, request: ApprovalRequest, said: Any) -> Answer:
    if said not in DECISIONS:
        raise ValueError(f"waits[{key!r}]: {said!r} is not an Answer or one of {', '.join(DECISIONS)}")
    return Answer(decision=said, arguments=request.arguments)


def _event(request: EventRequest, said: Any) -> Event:
    if isinstance(said, Event):
        if request.source and said.source != request.source:
            raise ValueError(f"the agent waits for {_wanted(request)}, but the answer is an event from {said.source!r}")
        return said
    data = {**request.match, "data": said} if request.type == SIGNAL else said
    return Event(id=uuid4(), type=request.type, source=request.source or "test", time=datetime.now(UTC), data=data)


def _unanswered(wait: NewWait) -> Unanswered:
    example = f"run_agent(…, waits={{{wait.key!r}: {_example(wait.request)}}})"
    return Unanswered(f"the agent waits for {_wanted(wait.request)}; answer it with {example}")


def _wanted(request: WaitRequest) -> str:
    match request:
        case EventRequest():
            matching = f" with {dict(request.match)}" if request.match else ""
            return f"an event {request.type!r}{f' from {request.source!r}' if request.source else ''}{matching}"
        case ApprovalRequest():
            return f"approval ({request.question})"
        case ChildrenRequest():
            return f"{len(request.children)} children"
    return "a time"


def _example(request: WaitRequest) -> str:
    match request:
        case ApprovalRequest():
            return '"approved"'
        case ChildrenRequest():
            return f"[{', '.join('…' for _ in request.children)}]"
    return "{…}"
