"""Run an agent in a test of yours: no broker, no worker, no rows but the ones your agent writes.

    @pytest.mark.django_db
    def test_a_digest_counts_what_is_new() -> None:
        Ticket.objects.create(digested=False)

        done = run_agent(ticket_digest)

        assert done.result == {"count": 1}
        assert [event.type for event in done.emitted] == ["tickets.digested"]
        assert not done.notifications

The body runs as in production: in a transaction (a savepoint of your test's), without network, on an event made of
what you give. What it raises is raised to you, and its writes are undone.

A durable agent runs to its end in one go. Its steps are really done, each transactional one in a savepoint without
network, and outside of them it may only read. Sleeping takes no time. What it waits for otherwise, you say, by the key that
the journal gives the wait; one that you left out is named by the error:

    def test_a_call_waits_for_approval() -> None:
        done = run_agent(onboarding, data={"id": 7}, waits={"event invoice.paid#1": None, "approval#1": "approved"})

        assert done.steps == ["welcome", "notify#1"]

It is given, for an event or a signal, its data, or None where none comes in time; for an approval "approved", "denied",
"expired" or an `Answer`; for children a list with the result (or an `Ended`) of each, or None where the time is over.

A journal of your own shows what a run goes on with after a crash:

    journal = Journal()
    with pytest.raises(Crashed):
        run_agent(onboarding, data={"id": 7}, journal=journal, crash_after="welcome")
    done = run_agent(onboarding, journal=journal, waits=…)

    assert "welcome" not in done.steps  # it was done before

Run with the same journal once more, it does nothing at all: `run_agent(onboarding, journal=journal).steps == []`. Where the
code no longer fits its journal, Parked says so, as the run's page would.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NoReturn
from uuid import UUID, uuid4

from django.db import connection, transaction

from agents.guards.atomic import atomic_body
from agents.guards.sql_writes import is_write, text_of
from agents.guards.storable import storable
from agents.journal.protocol import (
    EXPIRED,
    Answer,
    ApprovalWish,
    ChildrenWish,
    Ended,
    EventWish,
    Place,
    StepWish,
    TimeWish,
    WaitWish,
)
from agents.journal.simulated import Begun, Execution, as_stored

from .agent import Agent
from .async_run import AsyncAgentRun
from .effects import Child, Effects, Emission, Notice, Pace, Standing, Wake
from .exceptions import Permanent, StepFailed
from .reserved import SIGNAL
from .run import AgentRun, Event

DECISIONS = ("approved", "edited", "denied", "expired")


class Crashed(BaseException):
    """The process died where `crash_after` said."""


class Parked(BaseException):
    """The run would wait for a person to resolve it; the message says why."""


class Unanswered(BaseException):
    """The agent waits for something that `waits` does not answer; the message names the key."""


class _TriedAgain(BaseException):
    """A step has tries left, so the body begins once more."""


@dataclass(kw_only=True)
class Entry:
    """What a journal says of one step, value or wait."""

    kind: Literal["step", "value", "wait"]
    is_keyed: bool
    output: Any = None
    error: StepFailed | None = None
    attempts: int = 1


class Journal:
    """What one run of a durable agent has done, by key and in order; given to run_agent again, that run goes on. It is
    woken by what woke it the first time."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.run: dict[str, Any] = {}  # what makes it this run
        self.elapsed = timedelta()  # slept so far

    @property
    def keys(self) -> list[str]:
        return list(self.entries)


@dataclass(frozen=True, kw_only=True)
class AgentResult:
    """What a run would have committed besides the agent's own writes. Of a run that went on after a crash, what it has
    done since: `steps` are the keys of these steps, in order."""

    result: Any
    emitted: list[Emission]
    notifications: list[Notice]
    children: list[Child] = field(default_factory=list)
    wakes: list[Wake] = field(default_factory=list)
    schedules: list[Standing] = field(default_factory=list)
    pace: Pace | None = None
    steps: list[str] = field(default_factory=list)
    journal: Journal = field(default_factory=Journal)


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
    waits: Mapping[str, Any] | None = None,
    journal: Journal | None = None,
    crash_after: str = "",
) -> AgentResult:
    """Run the agent on one event with this `data`; `input` stands for what the trigger's input mapping would give.

    For durable agents: `waits` says what comes of waits, by key; `journal` is the run to go on with; after the step of the
    key `crash_after` is committed, Crashed is raised. Raises Unanswered and Parked besides what the agent raises.
    """
    if not agent.durable and (waits or journal or crash_after):
        raise ValueError(
            f"agent {agent.name!r} is atomic: it has no steps, waits or journal. Declare it with durable=True"
        )
    journal = journal if journal is not None else Journal()
    event = Event(id=uuid4(), type=type, source=source, subject=subject, time=time or datetime.now(UTC), data=data)
    journal.run = journal.run or {
        "id": run_id or uuid4(),
        "agent": agent.name,
        "trigger": trigger or agent.name,
        "input": input,
        "read_events": lambda: [event],
    }
    if agent.durable:
        return _run_durable(agent, attempt, journal, waits or {}, crash_after)
    run = AgentRun(**journal.run, attempt=attempt)
    with transaction.atomic():
        with atomic_body(agent.name):
            result = agent(run)
        storable(result, "its result")
        _check(run.effects)
    return _result(result, run.effects, [], journal)


def _run_durable(
    agent: Agent, attempt: int, journal: Journal, waits: Mapping[str, Any], crash_after: str
) -> AgentResult:
    steps: list[str] = []
    effects = Effects()
    while True:
        execution = _TestExecution(agent.name, journal, waits, crash_after, steps, effects)
        run = AgentRun(**journal.run, attempt=attempt, journal=execution)
        try:
            with connection.execute_wrapper(execution.refuse_writes):
                result = agent(AsyncAgentRun(run, execution) if agent.is_async else run)
            execution.require_end()
            break
        except _TriedAgain:
            continue
    if crash_after:
        raise ValueError(f"it ended without a step {crash_after!r}; the steps it did were {', '.join(steps) or 'none'}")
    return _result(storable(result, "its result"), effects, steps, journal)


def _result(result: Any, effects: Effects, steps: list[str], journal: Journal) -> AgentResult:
    return AgentResult(
        result=result,
        emitted=effects.emissions,
        notifications=effects.notices,
        children=effects.children,
        wakes=effects.wakes,
        schedules=effects.standings,
        pace=effects.paces[-1] if effects.paces else None,
        steps=steps,
        journal=journal,
    )


def _check(effects: Effects) -> None:
    for emission in effects.emissions:
        storable(emission.data, f"the data of emitted event {emission.type!r}")
    for child in effects.children:
        storable(child.input, f"the input of a child, {child.agent!r},")
    for wake in effects.wakes:
        storable(wake.data, "the data of wake_in")
    for pace in effects.paces:
        storable(pace.reason, "the reason of next_check")


class _TestExecution(Execution):
    def __init__(
        self, agent: str, journal: Journal, waits: Mapping[str, Any], crash_after: str, steps: list[str], left: Effects
    ) -> None:
        super().__init__(agent)
        self.left = left
        self._journal = journal
        self._waits = waits
        self._crash_after = crash_after
        self._steps = steps
        self._unasked = [key for key, entry in journal.entries.items() if not entry.is_keyed]

    # Steps and values

    def recall(self, key: str, wish: StepWish) -> Begun | None:
        known = self._look_up(key, "step", wish.place)
        if known is None:
            return None
        if known.error is None:
            return Begun(key, wish, is_recorded=True, output=known.output)
        if wish.effect == "at_most_once" or key != self._journal.keys[-1]:
            raise known.error
        return Begun(key, wish, attempts=known.attempts + 1)

    def recall_value(self, place: Place, key: str, draw: Callable[[], Any]) -> Any:
        known = self._look_up(key, "value", place)
        if known is not None:
            return known.output
        drawn = as_stored(draw(), key)
        if place.name == "now":
            drawn = (datetime.fromisoformat(drawn) + self._journal.elapsed).isoformat()
        self._write(key, Entry(kind="value", is_keyed=bool(place.key), output=drawn))
        return drawn

    def check(self, effects: Effects) -> None:
        _check(effects)

    def done(self, begun: Begun, output: Any) -> None:
        self._write(begun.key, Entry(kind="step", is_keyed=bool(begun.wish.place.key), output=output))
        self._steps.append(begun.key)
        if begun.key == self._crash_after:
            self.stop(Crashed(f"after step {begun.key!r}, as told"))

    def failed(self, begun: Begun, error: StepFailed) -> None:
        is_keyed, tries = bool(begun.wish.place.key), begun.attempts
        self._write(begun.key, Entry(kind="step", is_keyed=is_keyed, error=error, attempts=tries))
        if not error.permanent and tries <= begun.wish.retries:
            self.stop(_TriedAgain())

    def unsure(self, begun: Begun, error: BaseException) -> NoReturn:
        said = f"{type(error).__name__}: {error}"
        self.stop(Parked(f"step {begun.key!r} raised {said}; nobody knows whether it happened"))

    # Waits

    def answer(self, key: str, wish: WaitWish) -> Any:
        known = self._look_up(key, "wait", wish.place)
        if known is not None:
            return known.output
        if isinstance(wish, TimeWish):
            self._sleep(wish)
            came = None
        elif key in self._waits:
            came = _came(key, wish, self._waits[key])
        else:
            self.stop(Unanswered(f"it waits for {_wanted(wish)}: run_agent(…, waits={{{key!r}: {_example(wish)}}})"))
        if came is EXPIRED and not isinstance(wish, (TimeWish, ApprovalWish)):
            self._journal.elapsed += wish.timeout or timedelta()
        self._write(key, Entry(kind="wait", is_keyed=bool(wish.place.key), output=came))
        return came

    def _sleep(self, wish: TimeWish) -> None:
        slept = wish.duration or timedelta()
        if wish.until:
            slept = max(wish.until - (datetime.now(UTC) + self._journal.elapsed), timedelta())
        self._journal.elapsed += slept

    # The journal

    def _look_up(self, key: str, kind: str, place: Place) -> Entry | None:
        if key in self._unasked:
            self._unasked.remove(key)
        known = self._journal.entries.get(key)
        if known is None and self._unasked and not place.key:
            self.stop(Parked(f"its journal has {self._unasked[0]!r} next, and the code asked for {key!r}"))
        if known is not None and known.kind != kind:
            self.stop(Parked(f"its journal has {key!r} as a {known.kind}, and the code as a {kind}"))
        return known

    def _write(self, key: str, entry: Entry) -> None:
        self._journal.entries[key] = entry

    def require_end(self) -> None:
        super().require_end()
        if self._unasked:
            self.stop(Parked(f"its journal has {self._unasked[0]!r}, and the code ended without asking for that"))

    def refuse_writes(self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        """PostgreSQL's refusal in production, which a test's own transaction would not give."""
        if not self.may_write and is_write(text_of(sql)):
            raise Permanent(
                "a durable agent may only read here. Write in a transactional step: "
                'run.step("name", function), which is the default effect'
            )
        return execute(sql, params, many, context)


def _came(key: str, wish: WaitWish, said: Any) -> Any:
    match wish:
        case EventWish():
            return EXPIRED if said is None else _event(wish, said)
        case ApprovalWish():
            return said if isinstance(said, Answer) else _decided(key, wish, said)
        case ChildrenWish() if said is not None:
            if len(said) != len(wish.children):
                raise ValueError(f"waits[{key!r}]: {len(said)} answers for {len(wish.children)} children")
            return [end if isinstance(end, Ended) else Ended(status="succeeded", result=end) for end in said]
    return EXPIRED


def _decided(key: str, wish: ApprovalWish, said: Any) -> Answer:
    if said not in DECISIONS:
        raise ValueError(f"waits[{key!r}]: {said!r} is none of {', '.join(DECISIONS)}, and no Answer")
    return Answer(decision=said, arguments=wish.arguments)


def _event(wish: EventWish, said: Any) -> Event:
    if isinstance(said, Event):
        if wish.source and said.source != wish.source:
            raise ValueError(f"it waits for {_wanted(wish)}, and the answer is one from {said.source!r}")
        return said
    data = {**wish.match, "data": said} if wish.type == SIGNAL else said
    return Event(id=uuid4(), type=wish.type, source=wish.source or "test", time=datetime.now(UTC), data=data)


def _wanted(wish: WaitWish) -> str:
    match wish:
        case EventWish():
            matching = f" with {dict(wish.match)}" if wish.match else ""
            return f"an event {wish.type!r}{f' from {wish.source!r}' if wish.source else ''}{matching}"
        case ApprovalWish():
            return f"approval ({wish.question})"
        case ChildrenWish():
            return f"{len(wish.children)} children"
    return "a time"


def _example(wish: WaitWish) -> str:
    match wish:
        case ApprovalWish():
            return '"approved"'
        case ChildrenWish():
            return f"[{', '.join('…' for _ in wish.children)}]"
    return "{…}"
