from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from hashlib import sha256
from inspect import getsource, iscoroutinefunction
from typing import TYPE_CHECKING, Any, Literal

from asgiref.sync import async_to_sync

from agents.kernel.connecting import MayUse
from agents.kernel.durations import parse_duration
from agents.kernel.report import Report, read_reports

from .budget import Budget
from .exceptions import DeclarationError
from .gate import Gate
from .guards.body import within_body
from .on import TriggerDeclaration
from .registry import register

if TYPE_CHECKING:
    from .async_run import AsyncAgentRun
    from .run import AgentRun

Body = Callable[[Any], Any]  # takes an AgentRun; a durable async body takes an AsyncAgentRun
Overlap = Literal["allow", "skip", "queue_one", "queue", "cancel_previous"]
Overflow = Literal["delay", "drop"]


@dataclass(frozen=True, kw_only=True)
class Agent:
    """A named function, with the policy its author declared for it."""

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
    incident_after: int | None = None
    key_limit: int = 1
    rate: str = ""
    overflow: Overflow = "delay"
    debounce: timedelta | None = None
    batch: int = 0
    max_wait: timedelta | None = None
    durable: bool = False
    hold_key: bool = False
    keep_content: bool = True
    budget: Budget | None = None
    tools: tuple[str, ...] | None = None
    connections: MayUse = MayUse()
    gate: Gate | None = None
    checklist: Mapping[str, timedelta | None] = field(default_factory=dict)
    reports: tuple[Report, ...] = ()

    def __call__(self, run: "AgentRun | AsyncAgentRun") -> Any:
        with within_body():
            return async_to_sync(self.body)(run) if self.is_async else self.body(run)

    @property
    def is_async(self) -> bool:
        return iscoroutinefunction(self.body)

    @cached_property
    def version(self) -> str:
        """A fingerprint of the body's source, recorded with each run; empty if the source is not available. The version
        of a prompt agent is a fingerprint of its definition.
        """
        if said := getattr(self.body, "version", ""):
            return str(said)
        try:
            source = getattr(self.body, "source", "") or getsource(self.body)
            return sha256(source.encode()).hexdigest()[:12]
        except (OSError, TypeError):
            return ""


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
    incident_after: int | None = None,
    key_limit: int = 1,
    rate: str = "",
    overflow: Overflow = "delay",
    debounce: str | float | timedelta | None = None,
    batch: int = 0,
    max_wait: str | float | timedelta | None = None,
    durable: bool = False,
    hold_key: bool = False,
    keep_content: bool = True,
    budget: Budget | None = None,
    tools: Sequence[str] | None = None,
    connections: Sequence[str] | Mapping[str, str] = (),
    gate: Gate | None = None,
    checklist: Mapping[str, str | float | timedelta | None] | Sequence[str] = (),
    report: Report | Sequence[Report] = (),
) -> Callable[[Body], Agent]:
    """Declare an agent. Its body is one transaction: its writes, result, emitted events and notifications commit together.

    With `durable` the body is replayed instead: it takes steps (`run.step`), each done once, and may wait for days; outside
    of transactional steps it is read-only. While a run waits, other runs of its key may start, except under overlap "queue"
    with a limit of 1, or with `hold_key`. Without `keep_content` the journal loses prompts, answers and payloads of tools
    (`run.llm`) when the run succeeds; tokens and prices stay. Its LLM calls may use the `tools` of these names, by default
    all; code may narrow this later, only an operator may widen it. Its steps and tools may use the `connections` of these
    names (`run.connection`); `{"mail": "shop-mail"}` gives them shop-mail where they call it mail.

    `key` is CEL over `event`; runs with the same key do not overlap. `overlap` decides about a new event while a run of its
    key is live (default: "skip" for schedules, "queue" with a key, else "allow"). `priority` 0 is most urgent, 9 least.
    `timeout` ("30s") defaults to WAKEFUL_ATOMIC_TIMEOUT; for a durable agent it limits the time between two waits and
    defaults to WAKEFUL_DURABLE_TIMEOUT. `retries` come after the first attempt. The trigger pauses after `pause_after`
    failed runs in a row (0: never). `incident_after` failed runs with one cause, without a success between, open an incident
    (default: WAKEFUL_INCIDENT_AFTER; 0: none do).

    These limits count per key, or for the whole trigger if it has no key. `key_limit`: runs of a key at the same time.
    `rate` ("10/h", "100/15m"): most starts in any such span; `overflow` delays the others, or drops them with a recorded
    reason. `debounce` ("30s") waits until no event came for that long, `batch` (100) for that many events, both at most
    `max_wait` (default: ten times the debounce, or 60 s for a batch); one run then handles all of them as `run.events`.

    `budget` caps what runs of the agent use of models and tools: `Budget(run_usd="0.20", day_usd="5")`.

    `gate(run)` returns `Fire(reason, …)` or `Quiet(reason)` (`agents.gate`): it is called before each run of a trigger
    begins; with `Quiet` no run is created. `checklist` lists what the agent checks (`run.checklist`): texts, or a
    mapping of texts to intervals ("1h"; None: at each run). After an operator's first edit, the checklist in the code
    is ignored. `report` says where the outcome of its runs goes: `Report(on="failure", notify=["ops"])`, or several.
    Raises DeclarationError.
    """
    if not 0 <= priority <= 9:
        raise DeclarationError(f"agent {name!r}: priority {priority} is not between 0 (most urgent) and 9")
    if min(retries, pause_after, incident_after or 0) < 0:
        raise DeclarationError(f"agent {name!r}: retries, pause_after and incident_after must not be negative")
    if hold_key and not durable:
        raise DeclarationError(f"agent {name!r}: hold_key requires durable=True, because only durable agents can wait")
    if not keep_content and not durable:
        raise DeclarationError(
            f"agent {name!r}: keep_content=False requires durable=True: other agents have no journal"
        )
    if budget is not None and not durable:
        raise DeclarationError(f"agent {name!r}: budget requires durable=True, because only durable agents use models")
    if isinstance(tools, str) or not all(isinstance(tool, str) and tool for tool in tools or ()):
        raise DeclarationError(f"agent {name!r}: tools must be a list of names, not {tools!r}")
    named = connections if isinstance(connections, Mapping) else {one: one for one in connections}
    if isinstance(connections, str) or not all(isinstance(one, str) and one for pair in named.items() for one in pair):
        raise DeclarationError(f"agent {name!r}: connections must be a list or a mapping of names, not {connections!r}")
    if connections and not durable:
        raise DeclarationError(
            f"agent {name!r}: connections requires durable=True, because only durable agents use the network"
        )
    if gate is not None and (not callable(gate) or iscoroutinefunction(gate)):
        raise DeclarationError(f"agent {name!r}: gate must be a plain function of one argument, not {gate!r}")
    items = _items(name, checklist)
    try:
        reports = read_reports([report] if isinstance(report, Report) else report)
    except ValueError as error:
        raise DeclarationError(f"agent {name!r}: report: {error}") from error
    if max_wait is not None and debounce is None and not batch:
        raise DeclarationError(f"agent {name!r}: max_wait requires debounce or batch")

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
                incident_after=incident_after,
                key_limit=key_limit,
                rate=rate,
                overflow=overflow,
                debounce=None if debounce is None else parse_duration(debounce),
                batch=batch,
                max_wait=None if max_wait is None else parse_duration(max_wait),
                durable=durable,
                hold_key=hold_key,
                keep_content=keep_content,
                budget=budget,
                tools=None if tools is None else tuple(tools),
                connections=MayUse(names=dict(named)),
                gate=gate,
                checklist=items,
                reports=reports,
            )
        )

    return declare


def _items(
    name: str, checklist: Mapping[str, str | float | timedelta | None] | Sequence[str]
) -> Mapping[str, timedelta | None]:
    given = checklist if isinstance(checklist, Mapping) else dict.fromkeys(checklist)
    if isinstance(checklist, str) or not all(isinstance(text, str) and text.strip() for text in given):
        raise DeclarationError(f"agent {name!r}: checklist must be a list of texts, or a mapping of texts to intervals")
    items: dict[str, timedelta | None] = {}
    for text, every in given.items():
        if text.strip() in items:
            raise DeclarationError(f"agent {name!r}: checklist: it has {text.strip()!r} twice")
        try:
            items[text.strip()] = None if every is None else parse_duration(every)
        except ValueError as error:
            raise DeclarationError(f"agent {name!r}: checklist: {error}") from error
    return items
