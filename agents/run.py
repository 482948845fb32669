import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, overload
from uuid import UUID, uuid4

from agents.checklists.run_checklist import HoldItems, RunChecklist
from agents.guards.storable import storable
from agents.journal.engine import Journal
from agents.journal.protocol import (
    EXPIRED,
    Answer,
    ApprovalRequest,
    ChildrenRequest,
    Effect,
    Ended,
    EventRequest,
    OnExpiry,
    Place,
    StepRequest,
    TimeRequest,
)
from agents.kernel.connecting import MayUse
from agents.kernel.durations import in_words, parse_duration
from agents.kernel.effects import Child, Effects, Emission, Notice, Pace, Reply, Standing, Urgency, Wake
from agents.kernel.event_names import too_long
from agents.kernel.hidden_characters import in_sight
from agents.kernel.ids import child_id
from agents.kernel.log_lines import LogLines
from agents.kernel.reply_place import ReplyPlace
from agents.kernel.reserved_types import SIGNAL, is_reserved, refusal

from .agent import Agent
from .exceptions import ApprovalExpired, ChildFailed, NoReplyPlace, Permanent
from .gate import Fire
from .memory import Memory
from .state import State

if TYPE_CHECKING:
    from typing import Unpack

    import httpx2 as httpx
    from langgraph.pregel import Pregel
    from pydantic_ai import Agent as LlmAgent
    from pydantic_ai.run import AgentRunResult

    from agents.connections import Use
    from agents.llm.context import LlmContext, LlmOptions, Prompt

KEY_LENGTH = 200
REPLY_LENGTH = 20_000  # characters
LONGEST = timedelta(days=3660)
# A wake begins a new causal chain, so the loop guard does not stop a loop of wakes.
SHORTEST_WAKE = timedelta(seconds=1)
Duration = str | float | timedelta
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Event:
    """A recorded event. `data` is its JSON payload; None if it had none, or retention has removed it. `is_tainted`: a run that
    had seen untrusted data emitted it. `from_strangers`: strangers may write the data of its source."""

    id: UUID
    type: str
    source: str
    subject: str = ""
    time: datetime
    data: Any = None
    is_tainted: bool = False
    from_strangers: bool = False


def no_place(event_id: UUID) -> ReplyPlace:
    raise NoReplyPlace("run.reply: there is no place to answer here; give run_agent(…, reply_place=…) one")


@dataclass(frozen=True, kw_only=True)
class Spawned:
    """A child run: the result of `spawn` and the argument of `join` and `gather`."""

    id: UUID
    agent: str


class AgentRun:
    """An agent's view of its run: its events, steps, waits and effects.

    Steps and waits need a durable agent. A duration is a text ("90s", "3d"), a number of seconds or a timedelta.
    """

    def __init__(
        self,
        *,
        id: UUID,
        agent: str,
        attempt: int = 1,
        trigger: str = "",
        input: Mapping[str, Any] | None = None,
        read_events: Callable[[], list[Event]],
        journal: Journal | None = None,
        tools: frozenset[str] | None = None,
        may_use: MayUse = MayUse(),  # noqa: B008  (frozen)
        is_tainted: bool = False,
        from_strangers: Callable[[], bool] = lambda: False,
        fired: Fire | None = None,
        hold_items: HoldItems = list,
        find_place: Callable[[UUID], ReplyPlace] = no_place,
        log_lines: LogLines | None = None,
    ) -> None:
        self.id = id
        self.agent = agent
        self.attempt = attempt
        self.trigger = trigger
        self.fired = fired  # the answer of the gate; None: the gate was not called
        self.state = State(agent, self._leave, self._value, self)
        self.memory = Memory(agent, self._leave, self._value, self)
        self.checklist = RunChecklist(
            agent, trigger, id, leave=self._leave, value=self._value, effects=lambda: self.effects, hold=hold_items
        )
        self._input = input
        self._log_lines = log_lines or LogLines(is_kept=False)
        self._read_events = read_events
        self._journal = journal
        self._effects = Effects()
        self._tools = tools
        self._may_use = may_use
        self._is_tainted = is_tainted
        self._from_strangers = from_strangers
        self._find_place = find_place
        self._awaited: list[Event] = []
        self._said: list[Any] = []  # texts from its models
        if is_tainted and journal:
            journal.store.is_tainted = True

    @cached_property
    def log(self) -> Any:
        """A logger whose lines name the agent and the run. They are also kept with the run, within bounds."""
        return self._log_lines.logger("agent", agent=self.agent, run=str(self.id))

    # Its events

    @cached_property
    def events(self) -> list[Event]:
        """Every event this run handles, oldest first."""
        return self._read_events()

    @property
    def event(self) -> Event:
        """The event that woke this run (the newest of several). Permanent: another run spawned this one."""
        if not self.events:
            raise Permanent("this run was spawned by another, so it has no event; read run.input")
        return self.events[-1]

    @property
    def input(self) -> Any:
        """The trigger's input mapping applied to the event, or the input from the parent run; else the event's data."""
        if self._input is not None or not self.events:
            return self._input
        return self.event.data

    # Its effects

    @property
    def effects(self) -> Effects:
        inside = self._journal.effects if self._journal else None
        return self._effects if inside is None else inside

    def emit(self, type: str, data: Any = None, *, key: str = "", subject: str = "") -> None:
        """Emit an event when the run commits (in a durable run: the step). `key` names it within the run; default: its
        ordinal. ValueError: the type is reserved (`agents.kernel.reserved_types`). Permanent: type or subject is too long."""
        if not type or not all(isinstance(text, str) for text in (type, key, subject)):
            raise ValueError(f"emit({type!r}): type, key and subject must be texts, and the type not empty")
        if is_reserved(type):
            raise ValueError(f"emit: {refusal(type)}")
        if long := too_long(type=type, subject=subject):
            raise Permanent(f"emit({type[:50]!r}): {long}")
        if len(key) > KEY_LENGTH:
            raise ValueError(f"emit({type!r}): the key has {len(key)} characters; use at most {KEY_LENGTH}")

        def act(step: str) -> None:
            name = step or self._name(key, len(self.effects.emissions))
            if any(emission.key == name for emission in self.effects.emissions):
                raise ValueError(f"emit({type!r}): this run has already emitted an event under the key {name!r}")
            self.effects.emissions.append(Emission(type=type, data=data, key=name, subject=subject))

        self._leave(_place(f"emit {type}", key), act)

    def notify(
        self,
        text: str,
        *,
        urgency: Urgency = "normal",
        topic: str = "",
        to: str | Sequence[str] = (),
        link: str = "",
    ) -> None:
        """Notify people when the run commits (in a durable run: the step).

        `to`: names of recipients or groups; without it, everyone who gets notifications without one. An unknown name does
        not fail the run: the delivery shows it, and an alarm is raised. `topic`: the same text about the same topic is
        sent once a day. `urgency` "high" passes quiet hours and spacing. `link` is an address to go to; without it, the
        run's page.
        """
        if not isinstance(text, str) or not text:
            raise ValueError(f"notify({text!r}): give a non-empty text")
        if urgency not in ("low", "normal", "high"):
            raise ValueError(f'notify: urgency {urgency!r} is not "low", "normal" or "high"')
        if not isinstance(topic, str) or len(topic) > KEY_LENGTH:
            raise ValueError(f"notify: topic must be a text of at most {KEY_LENGTH} characters")
        if not isinstance(link, str) or (link and not link.startswith(("https://", "http://"))):
            raise ValueError(f"notify: link {link!r} does not begin with https:// or http://")
        notice = Notice(text=text, urgency=urgency, topic=topic, link=link, to=_names(to))
        self._leave(_place("notify"), lambda step: self.effects.notices.append(notice))

    def reply(self, text: str) -> None:
        """Answer the message that woke this run, in its thread, when the run commits (in a durable run: the step). NoReplyPlace: it has
        no place to answer."""
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"reply({text!r}): give a non-empty text")
        if len(text) > REPLY_LENGTH:
            raise ValueError(f"reply: the text has {len(text):,} characters; use at most {REPLY_LENGTH:,}")

        def act(step: str) -> None:
            self.effects.replies.append(Reply(text=text, place=self.reply_place))

        self._leave(_place("reply"), act)

    @property
    def thread(self) -> str:
        """The conversation of the message that woke this run, as the name of a session: `run.llm(…, session=run.thread)`.
        NoReplyPlace: it is in none."""
        name: str = self._value("thread", lambda: self.reply_place.thread)
        return name

    @property
    def thread_or_none(self) -> str | None:
        """As `thread`; None: what woke this run is in no conversation, or in several, which must not mix."""

        def find() -> str | None:
            try:
                threads = {self.reply_place.thread, *(self._find_place(event.id).thread for event in self.events[:-1])}
            except NoReplyPlace:
                return None
            return threads.pop() if len(threads) == 1 else None

        name: str | None = self._value("thread", find)
        return name

    @cached_property
    def reply_place(self) -> ReplyPlace:
        """Where the message that woke this run is answered. NoReplyPlace: nowhere."""
        if not self.events:
            raise NoReplyPlace(
                "run.reply: this run was spawned by another, so no message woke it. Reply in the run that the message woke, or use "
                "run.notify(…)"
            )
        return self._find_place(self.event.id)

    def spawn(self, agent: "Agent | str", input: Any = None, *, key: str = "", at_once: int = 0) -> Spawned:
        """Start a run of another agent in this run's commit (in a durable run: the step's); it gets `input` and has no event.
        `at_once` limits how many children of that agent run at the same time; 0: no limit."""
        name = agent if isinstance(agent, str) else agent.name
        if at_once < 0:
            raise ValueError(f"spawn({name!r}): at_once must not be negative")

        def act(step: str) -> str:
            place = step or self._name(key, len(self.effects.children))
            child = Child(
                id=child_id(self.id, f"{name}:{place}"),
                agent=name,
                input=input,
                key=place,
                at_once=at_once,
            )
            if any(other.id == child.id for other in self.effects.children):
                raise ValueError(f"spawn({name!r}): this run has already spawned a child under the key {place!r}")
            self.effects.children.append(child)
            return str(child.id)

        return Spawned(id=UUID(self._leave(_place(f"spawn {name}", key), act)), agent=name)

    def wake_in(self, after: Duration, data: Any = None, *, reason: str = "", key: str = "") -> None:
        """Wake this run's own trigger again after this time, with an event of type `run.wakeup`. Its data is that of this
        run's event, so that keys and filters still work, updated with `data` if that is a dictionary, else replaced by it.
        WAKEFUL_MAX_WAKES limits the pending wakes of a trigger."""
        delay = parse_duration(after)
        if not SHORTEST_WAKE <= delay <= LONGEST:
            raise ValueError(f"wake_in({after!r}): use a time from one second to ten years")

        def act(step: str) -> None:
            name = step or self._name(key, len(self.effects.wakes))
            self.effects.wakes.append(Wake(after=delay, data=self._laid_over(data), key=name, reason=reason))

        self._leave(_place("wake_in", key), act)

    def next_check(self, delay: Duration, reason: str = "") -> None:
        """Set the time from the end of this run (in a durable run: this step) to its next heartbeat, within the pace of its
        schedule. The last call counts; it has no effect if the run fails."""
        if not isinstance(reason, str):
            raise ValueError(f"next_check: the reason must be a text, not {reason!r}")
        pace = Pace(after=_ahead("next_check", delay), reason=reason)
        self._leave(_place("next_check"), lambda step: self.effects.paces.append(pace))

    def schedule(
        self,
        name: str,
        *,
        cron: str = "",
        tz: str = "UTC",
        every: Duration | None = None,
        spacing: Duration | None = None,
    ) -> None:
        """Create or change the schedule of that name on this run's own trigger; without `cron` and `every`, delete it. With
        `spacing` the run fails if the schedule fires more often than this, or than the rate and the pace of its trigger."""
        if not name or (cron and every is not None):
            raise ValueError(f"schedule({name!r}): give a name, and either cron or every")
        standing = Standing(
            name=name,
            cron=cron,
            tz=tz,
            every=None if every is None else parse_duration(every),
            spacing=None if spacing is None else parse_duration(spacing),
        )
        self._leave(_place(f"schedule {name}"), lambda step: self.effects.standings.append(standing))

    # Its steps

    def step(
        self,
        name: str,
        body: Callable[..., T],
        *arguments: Any,
        key: object = "",
        effect: Effect = "transactional",
        retries: int = 0,
        timeout: Duration | None = None,
    ) -> T:
        """Call `body(*arguments)` once, even if this process dies, and return its output, which must be JSON.

        `transactional`: its writes and the journal's entry commit together; it may not use the network. `read` and
        `idempotent` steps may be repeated after a crash, with the same `run.idempotency_key`. An `at_most_once` step is never
        repeated: if its outcome is unknown, the run waits for a person. A name that is used again, or in parallel, needs a
        `key`. Raises StepFailed if the body raised, after `retries` tries, each after a backoff that occupies no worker.
        """
        journal = self._durable("step")
        begun = journal.begin(step_request(name, arguments, key, effect, retries, timeout))
        if begun.is_recorded:
            output: T = begun.output
            return output
        with self.state.undone_by_failure(), self.memory.undone_by_failure():
            done: T = journal.perform(begun, partial(body, *arguments))
        return done

    @property
    def idempotency_key(self) -> str:
        """A key to send with an outside call of a step, so that the receiver recognizes a repetition."""
        if not self._journal or not self._journal.step_key:
            raise Permanent("run.idempotency_key exists only in a step: read it inside run.step(…)")
        return f"{self.id}:{self._journal.step_key}"

    def now(self) -> datetime:
        """The current time, aware UTC; in a durable run the same on every replay."""
        return datetime.fromisoformat(self._value("now", lambda: datetime.now(UTC).isoformat()))

    def uuid(self) -> UUID:
        """A new UUID; in a durable run the same on every replay."""
        return UUID(self._value("uuid", lambda: str(uuid4())))

    def random(self) -> float:
        """A number from 0 up to 1, not for secrets; in a durable run the same on every replay."""
        drawn: float = self._value("random", random.random)
        return drawn

    def llm(
        self,
        agent: "LlmAgent[Any, Any]",
        prompt: "Prompt",
        *,
        untrusted: Any = None,
        deps: Any = None,
        key: str = "",
        **options: "Unpack[LlmOptions]",
    ) -> "AgentRunResult[Any]":
        """Run a `pydantic_ai.Agent` to its result, whose `.output` is the answer. Each model request and each tool call
        is a step, so none is sent or paid again on a replay. `untrusted` is data of strangers, which is fenced behind
        the prompt and taints the run: from then on dangerous tools need approval. `deps` are what its tools are given,
        as `RunContext.deps`. `options`: see `agents.llm.context.LlmOptions`.
        """
        from agents.llm.call import run_sync

        return run_sync(
            self._durable("llm"),
            self.llm_context(),
            agent,
            prompt,
            untrusted=untrusted,
            deps=deps,
            key=key,
            options=options,
        )

    def graph(
        self,
        app: "Pregel[Any, Any, Any, Any]",
        input: Any,
        *,
        key: str = "",
        config: Any = None,
        context: Any = None,
        answer: Callable[[Any, Answer], Any] | None = None,
    ) -> Any:
        """Run a compiled graph of LangGraph to its end; return its output. Its checkpoints are steps, so a replay goes on from
        its last node; its interrupts are questions to people (`agents.graphs.questions`), and `answer(value, decision)` replaces
        what their nodes get. Models are to be `agents.graphs.journaled`. `config` and `context` are those of the graph. Needs the
        extra `langgraph`.
        """
        from agents.graphs.extra import require_langgraph

        journal = self._durable("graph")
        require_langgraph()
        from agents.graphs.call import run_sync

        return run_sync(journal, self.llm_context(), app, input, key=key, config=config, given=context, answer=answer)

    def openai(
        self, agent: Any, input: Any, *, key: str = "", trusted_tools: Sequence[str] = (), **options: Any
    ) -> Any:
        """Run an agent of openai-agents to its `RunResult`. Each request to a model is a step, whatever its model is; its tools run
        again on a replay, so their effects belong in `run.step(…, key=…)`. Tools that need approval are questions to people. What a
        tool gave is data of strangers, which taints the run, unless `trusted_tools` names the tool. `options` are those of
        `Runner.run`, but for `session`. Needs the extra `openai-agents`, and Wakeful as a package.
        """
        from agents.openai.call import run_sync

        return run_sync(
            self._durable("openai"),
            self.llm_context(),
            agent,
            input,
            key=key,
            trusted_tools=trusted_tools,
            options=options,
        )

    def llm_context(self) -> "LlmContext":
        from agents.llm.context import LlmContext

        return LlmContext(
            run_id=self.id,
            agent=self.agent,
            tools=self._tools,
            ask=self.ask_approval,
            is_tainted=lambda: self.is_tainted,
            taint=self.taint,
            from_strangers=lambda: self.is_from_strangers,
            given=lambda: [
                self.input,
                *((event.subject, event.data) for event in (*self.events, *self._awaited)),
                *self._said,
            ],
            note_said=self._said.append,
        )

    def connection(self, name: str, *, trusted: bool = False, harmless: bool = False) -> "httpx.Client":
        """A client of httpx2 that acts for the account which people have connected under this name (or under that which the agent
        has for it), for a step or a tool that is not transactional: `with run.connection("gmail") as http`. Permanent: the agent
        does not declare it in `connections=[…]`.

        What a step reads by it is data of strangers and taints the run, unless it is `trusted`; of a tool, its own metadata
        decides. A step or tool with effect "read" only reads. So does, in a run that has seen untrusted data, a tool that is not
        declared dangerous, unless what it does is `harmless`.
        """
        from agents.connections import client

        return client(self.use_of_connection(name, trusted=trusted, harmless=harmless))

    def use_of_connection(self, name: str, *, trusted: bool, harmless: bool) -> "Use":
        from agents.connections import use_of

        self._durable("connection")
        if name not in self._may_use.names:
            allowed = ", ".join(self._may_use.names) or "none"
            raise Permanent(
                f"agent {self.agent!r} may not use connection {name!r}: declare it in connections=[…], which has {allowed}; of a prompt "
                "agent, choose one"
            )
        use = use_of(
            self._may_use.names[name],
            self.agent,
            acts_for=self._may_use.acts_for,
            is_tainted=self.is_tainted,
            harmless=harmless,
        )
        if use.is_in_step and not trusted:
            self.taint()
        return use

    # Trust

    @property
    def is_from_strangers(self) -> bool:
        """May strangers have written what woke this run, what began its chain, or what it has waited for? Its first call of a model
        taints it then."""
        return self._woken_by_strangers or any(event.from_strangers for event in self._awaited)

    @cached_property
    def _woken_by_strangers(self) -> bool:
        return self._from_strangers()

    @property
    def is_tainted(self) -> bool:
        """Has this run seen untrusted data? If so, its dangerous tools need approval. A run is also tainted if it was
        woken by a tainted event, was was spawned by a tainted run, or has read a tainted state value, note, turn, event
        or result. On a replay it is true from the beginning, so a durable body must not branch on it.
        """
        return self._is_tainted

    def taint(self) -> None:
        """Mark this run as tainted: it has seen untrusted data. `llm(untrusted=…)` calls this. A run stays tainted. It
        counts for all effects of the commit (in a durable run: of the step), also for those before it.
        """
        self._is_tainted = True
        if self._journal:
            self._journal.store.is_tainted = True

    # Its waits

    def sleep(self, duration: Duration, *, key: str = "") -> None:
        """Wait for a duration; the run occupies no process meanwhile, unless that is one of a few milliseconds."""
        self._durable("sleep").wait(TimeRequest(place=_place("sleep", key), duration=_ahead("sleep", duration)))

    def sleep_until(self, instant: datetime, *, key: str = "") -> None:
        """Wait until an aware instant; the run occupies no process meanwhile."""
        if instant.tzinfo is None:
            raise ValueError(f"sleep_until({instant!r}): the instant has no time zone; give it a tzinfo")
        self._durable("sleep_until").wait(TimeRequest(place=_place("sleep", key), until=instant))

    def wait_for_event(
        self,
        type: str,
        *,
        match: Mapping[str, Any] | None = None,
        source: str = "",
        timeout: Duration | None = None,
        key: str = "",
    ) -> Event | None:
        """Wait for the first event of this type since the run was created that no earlier wait of the run took; None after
        the timeout. `match` maps paths in its data to their values: {"customer.id": 7}. `source` is the slug of the only
        source that counts: without it, everyone who may send an event can end this wait."""
        if not isinstance(type, str) or not type:
            raise ValueError(f"wait_for_event({type!r}): give the type of the event")
        if not isinstance(source, str):
            raise ValueError(f"wait_for_event({type!r}): source {source!r} is not the slug of a source")
        request = EventRequest(
            place=_place(f"event {type}", key),
            type=type,
            match=_match(type, match),
            source=source,
            timeout=_ahead("timeout", timeout),
        )
        return self._came(self._durable("wait_for_event").wait(request))

    def wait_for_signal(self, name: str, *, timeout: Duration | None = None, key: str = "") -> Event | None:
        """Wait for the first signal of this name to this run that no earlier wait took; None after the timeout. `data` is
        the data of the sender."""
        request = EventRequest(
            place=_place(f"signal {name}", key),
            type=SIGNAL,
            match={"run": str(self.id), "name": name},
            timeout=_ahead("timeout", timeout),
        )
        came = self._came(self._durable("wait_for_signal").wait(request))
        return None if came is None else replace(came, data=(came.data or {}).get("data"))

    def ask_approval(
        self,
        question: str,
        *,
        arguments: Any = None,
        detail: str = "",
        expires: Duration | None = None,
        on_expiry: OnExpiry = "deny",
        key: str = "",
    ) -> Answer:
        """Request a person's approval and wait for the answer, which is true if it was granted. `arguments` describe
        the action; the person may edit them, so use those of the answer. Raises ApprovalExpired after the deadline if
        `on_expiry` is "fail".
        """
        if not all(isinstance(text, str) for text in (question, detail)) or not question:
            raise ValueError(
                f"ask_approval({question!r}): question and detail must be texts, and the question not empty"
            )
        if on_expiry not in ("deny", "fail"):
            raise ValueError(f'ask_approval: on_expiry {on_expiry!r} is not "deny" or "fail"')
        request = ApprovalRequest(
            place=_place("approval", key),
            question=in_sight(storable(question, "the question of ask_approval")),
            detail=in_sight(storable(detail, "the detail of ask_approval")),
            arguments=json.loads(json.dumps(storable(arguments, f"the arguments of {question!r}"))),
            expires=_ahead("expires", expires),
            on_expiry=on_expiry,
        )
        answer: Answer = self._durable("ask_approval").wait(request)
        if answer.decision == "expired" and on_expiry == "fail":
            raise ApprovalExpired(f"no decision before the deadline: {question}")
        return answer

    def join(self, *children: Spawned, timeout: Duration | None = None, key: str = "") -> list[Ended]:
        """Wait until these child runs have finished; return how each ended. TimeoutError after the timeout."""
        ids = [child.id for child in children]
        request = ChildrenRequest(place=_place("join", key), children=ids, timeout=_ahead("timeout", timeout))
        ended = self._durable("join").wait(request) if children else []
        if ended is EXPIRED:
            within = in_words(request.timeout or timedelta())
            raise TimeoutError(f"not all of {len(children)} child runs finished within {within}")
        found: list[Ended] = ended
        if any(end.is_tainted for end in found):
            self.taint()
        return found

    def gather(self, *children: Spawned, timeout: Duration | None = None, key: str = "") -> list[Any]:
        """Wait for these child runs and return their results. ChildFailed if one of them did not succeed."""
        ended = self.join(*children, timeout=timeout, key=key)
        for child, end in zip(children, ended, strict=True):
            if end.status != "succeeded":
                raise ChildFailed(child.id, end.status, end.error)
        return [end.result for end in ended]

    def _came(self, event: Any) -> Event | None:
        if event is EXPIRED:
            return None
        if event.is_tainted:
            self.taint()
        found: Event = event
        self._awaited.append(found)
        return found

    # The journal

    def _durable(self, what: str) -> Journal:
        if self._journal is None:
            raise Permanent(
                f"agent {self.agent!r} is atomic: its body is one transaction, so there is no run.{what}(). "
                "Declare it with durable=True."
            )
        return self._journal

    def _leave(self, place: Place, act: Callable[[str], Any]) -> Any:
        """Record an effect: in the run, in the running step, or in a step of its own, whose key is passed to `act`."""
        if self._journal is None or self._journal.effects is not None:
            return act("")
        begun = self._journal.begin(StepRequest(place=place))
        return begun.output if begun.is_recorded else self._journal.perform(begun, lambda: act(begun.key))

    def _value(self, name: str, draw: Callable[[], Any]) -> Any:
        if self._journal is None or self._journal.effects is not None:
            return draw()
        return self._journal.value(_place(name), draw)

    def _laid_over(self, data: Any) -> Any:
        said = self.event.data if self.events else None
        if isinstance(said, dict) and isinstance(data, dict):
            return {**said, **data}
        return said if data is None else data

    def _name(self, key: str, ordinal: int) -> str:
        """The name of an effect within the run. The first slash ends the step's key, so slashes in it are escaped as in a JSON
        pointer: otherwise two effects could share a name, and only one would be recorded."""
        step = self._journal.step_key.replace("~", "~0").replace("/", "~1") if self._journal else ""
        return "/".join(filter(None, (step, key or str(ordinal + 1))))


def step_request(
    name: str, arguments: Sequence[Any], key: object, effect: Effect, retries: int, timeout: Duration | None
) -> StepRequest:
    return StepRequest(
        place=Place(name=name, key=str(key)),
        effect=effect,
        retries=retries,
        timeout=_ahead("timeout", timeout),
        arguments=arguments,
    )


def _match(type: str, match: Mapping[str, Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = storable(dict(match or {}), f"the match of wait_for_event({type!r})")
    for path, value in found.items():
        if not isinstance(path, str) or isinstance(value, (dict, list, tuple)):
            raise ValueError(f"wait_for_event({type!r}): match {path!r} must map a path to a single value")
        if any(other.startswith(f"{path}.") for other in found):
            raise ValueError(f"wait_for_event({type!r}): {path!r} cannot have a value and a path below it")
    return found


def _names(to: str | Sequence[str]) -> tuple[str, ...]:
    names = (to,) if isinstance(to, str) else tuple(to)
    if not all(isinstance(name, str) and 0 < len(name) <= KEY_LENGTH for name in names):
        raise ValueError(f"notify: to={to!r} must be a name, or names, of recipients")
    return tuple(dict.fromkeys(names))


def _place(name: str, key: str = "") -> Place:
    return Place(name=name, key=key, is_numbered=not key)


@overload
def _ahead(what: str, duration: Duration) -> timedelta: ...
@overload
def _ahead(what: str, duration: Duration | None) -> timedelta | None: ...
def _ahead(what: str, duration: Duration | None) -> timedelta | None:
    if duration is None:
        return None
    parsed = parse_duration(duration)
    if not timedelta() <= parsed <= LONGEST:
        raise ValueError(f"{what} {in_words(parsed)}: use a duration from 0 to ten years")
    return parsed
