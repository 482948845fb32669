"""The conversation of a run with its models, read from its journal, for the page of the run and the API."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import (
    BigIntegerField,
    Count,
    DecimalField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    TextField,
)
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce, JSONObject

from agents.exceptions import Permanent, as_text
from agents.guards.storable import storable
from agents.kernel.redaction import redacted_json
from runs.models import Approval, Attempt, Run, Step
from runs.states import RunStatus

TURNS = 100  # turns of a page
LONGEST = 64 * 1024  # characters of a text; the rest is cut
DESCRIPTION = 200  # characters of a tool's description, where all tools together are longer than that
KINDS = {"text": "answer"}  # of a part of an answer, by pydantic-ai's word
BUILTIN = "builtin"  # the name of the model that agents.llm.providers.builtin is
DOLLARS = DecimalField(max_digits=30, decimal_places=12)
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens, and their price in US dollars as far as it is known."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: Decimal = Decimal(0)
    unpriced: int = 0  # requests whose price is not known
    builtin: int = 0  # requests that the built-in model answered

    @classmethod
    def of(cls, recorded: Sequence[Mapping[str, Any] | None]) -> "Usage":
        known = [usage for usage in recorded if usage]
        return cls(
            requests=len(known),
            **{name: sum(usage.get(name) or 0 for usage in known) for name in TOKENS},
            cost=sum((Decimal(usage.get("cost") or 0) for usage in known), Decimal(0)),
            unpriced=sum(usage.get("cost") is None and usage.get("model") != BUILTIN for usage in known),
            builtin=sum(usage.get("model") == BUILTIN for usage in known),
        )


def with_usage(runs: QuerySet[Run]) -> QuerySet[Run]:
    """The runs with `used`: what `usage_of` reads."""
    requests = Step.objects.filter(run=OuterRef("pk"), usage__isnull=False).order_by().values("run_id")
    sums: dict[str, Any] = {name: Sum(Cast(KT(f"usage__{name}"), BigIntegerField())) for name in TOKENS}
    is_builtin, is_unpriced = Q(usage__model=BUILTIN), Q(usage__cost=None)
    cost = Coalesce(Sum(Cast(KT("usage__cost"), DOLLARS)), 0, output_field=DOLLARS)
    used = JSONObject(
        requests=Count("*"),
        cost=Cast(cost, TextField()),
        unpriced=Count("key", filter=is_unpriced & ~is_builtin),
        builtin=Count("key", filter=is_builtin),
        **sums,
    )
    return runs.annotate(used=Subquery(requests.annotate(used=used).values("used")))


def usage_of(run: Run) -> Usage | None:
    """The usage of a run; None if it called no model."""
    used = getattr(run, "used", None)
    return Usage(**{**used, "cost": Decimal(used["cost"])}) if used else None


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of a prompt or an answer. `kind`: system, user, tool-return, retry; answer, thinking, tool-call; or what
    pydantic-ai calls it. `is_untrusted`: data of strangers, as it stood in its fence. `is_history`: of an earlier call."""

    kind: str
    text: str
    tool: str = ""
    is_untrusted: bool = False
    is_history: bool = False


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A call of a tool. `status`: done, failed or started, as its step is; open or denied, as its approval is; output, where
    it is the model's answer; called, where nothing is recorded yet. `arguments` are those that the model gave, and
    `edited_arguments` those that a person made of them."""

    key: str
    tool: str
    call_id: str
    status: str
    arguments: Any
    edited_arguments: Any = None
    result: Any = None
    is_untrusted: bool = False  # the result is data of strangers
    error: str = ""
    effect: str = ""
    attempts: int = 0
    claim: int | None = None
    approval: UUID | None = None
    decision: str = ""
    began: datetime | None = None
    ended: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A request to a model and its answer. `prompt` is what this request added to the conversation; instructions, tools and
    settings stand where they changed. `claim` is the epoch of the claim that sent the request (0: the run it was forked
    from), `replayed_by` are the epochs of later claims, which got the recorded answer. `drifted`: earlier requests
    whose prompts differ in the code that made this one."""

    number: int
    key: str
    status: str
    prompt: Sequence[Part]
    instructions: str
    tools: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any]
    answer: Sequence[Part]
    tool_calls: Sequence[ToolCall]
    model: str
    provider: str
    finish_reason: str
    usage: Usage
    cost: Decimal | None
    attempts: int
    error: str
    claim: int
    replayed_by: Sequence[int]
    drifted: Sequence[str]
    began: datetime
    ended: datetime | None


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of `run.llm`. `steps`: steps of toolsets before the first turn of this page. `session`: whose history the
    call went on with; empty for a fresh one."""

    key: str
    model: str
    session: str
    is_untrusted: bool
    began: datetime
    turns: Sequence[Turn]
    steps: Sequence[ToolCall]


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """A page of a run's conversation. `is_kept`: its content is in the journal still; `usage` is that of the whole run."""

    run: UUID
    is_kept: bool
    usage: Usage
    tool_calls: int
    page: int
    pages: int
    calls: Sequence[Call] = field(default_factory=list)


def transcript_of(run: Run, page: int | None = None) -> Transcript:
    """The given page, else the last one. A run that never called `run.llm` has no calls."""
    steps = Step.objects.filter(run=run)
    openings = list(steps.filter(kind=Step.Kind.LLM).order_by("position"))
    usages = list(steps.filter(kind=Step.Kind.MODEL).values_list("usage", flat=True)) if openings else []
    pages = max(1, -(-len(usages) // TURNS))
    number = min(max(page or pages, 1), pages)
    entries = _page(steps, number) if openings else []
    reader = _Reader(run, openings, entries)
    calls = [reader.call(opening) for opening in openings]
    return Transcript(
        run=run.pk,
        is_kept=all(opening.output is not None for opening in openings),
        usage=Usage.of(usages),
        tool_calls=steps.filter(kind=Step.Kind.TOOL).count() if openings else 0,
        page=number,
        pages=pages,
        calls=[call for call in calls if call.turns or call.steps or pages == 1],
    )


def answer_of(request: Step) -> list[Part]:
    """What a model answered to this request, without its calls of tools."""
    return [
        Part(kind=KINDS.get(part["part_kind"], part["part_kind"]), text=_shown(_content(part)))
        for part in _answer(request).get("parts", ())
        if part["part_kind"] != "tool-call"
    ]


def _page(steps: QuerySet[Step], number: int) -> list[Step]:
    """One page of turns, with the tool calls of their answers."""
    positions = steps.filter(kind=Step.Kind.MODEL).order_by("position").values_list("position", flat=True)
    begins = list(positions[(number - 1) * TURNS : number * TURNS + 1])
    found = steps.filter(kind__in=[Step.Kind.MODEL, Step.Kind.TOOL]).order_by("position")
    if number > 1:
        found = found.filter(position__gte=begins[0])
    if len(begins) > TURNS:
        found = found.filter(position__lt=begins[TURNS])
    return list(found)


class _Reader:
    def __init__(self, run: Run, openings: Sequence[Step], entries: Sequence[Step]) -> None:
        self._entries = entries
        keys = sorted((opening.key for opening in openings), key=len, reverse=True)
        self._calls = {
            entry.key: next((key for key in keys if entry.key.startswith(f"{key}:")), "") for entry in entries
        }
        self._claims = _claims_of(run)
        asked = Approval.objects.filter(wait__run=run, wait__key__startswith=Approval.OF_TOOLS)
        self._approvals = list(asked.select_related("wait").order_by("wait__position"))

    def call(self, opening: Step) -> Call:
        said = opening.output or {}
        turns: list[tuple[Step, list[Step]]] = []
        before: list[Step] = []
        for entry in self._entries:
            if self._calls[entry.key] != opening.key:
                continue
            if entry.kind == Step.Kind.MODEL:
                turns.append((entry, []))
            else:
                (turns[-1][1] if turns else before).append(entry)
        return Call(
            key=opening.key,
            model=said.get("model", ""),
            session=said.get("session", ""),
            is_untrusted=said.get("untrusted", False),
            began=opening.started_at,
            turns=[self._turn(request, tools, said.get("mark", "")) for request, tools in turns],
            steps=[_performed(opening.key, step) for step in before],
        )

    def _turn(self, request: Step, tools: list[Step], mark: str) -> Turn:
        asked, answer, usage = _asked(request), _answer(request), request.usage or {}
        call = self._calls[request.key]
        number = re.search(r":request (\d+)$", request.key)
        parts = [part for message in asked.get("parts", ()) for part in _fenced_apart(message, mark)]
        return Turn(
            number=int(number[1]) if number else 0,
            key=request.key,
            status=request.status,
            prompt=parts,
            instructions=_shown(asked.get("instructions", "")),
            tools=_shown_tools(asked.get("tools", [])),
            settings={name: _shown_json(value) for name, value in asked.get("settings", {}).items()},
            answer=answer_of(request),
            tool_calls=self._tool_calls(call, answer, tools, asked.get("output_tools", ())),
            model=usage.get("model", ""),
            provider=usage.get("provider", ""),
            finish_reason=answer.get("finish_reason") or "",
            usage=Usage.of([usage]),
            cost=Decimal(usage["cost"]) if usage.get("cost") is not None else None,
            attempts=request.attempts,
            error=_shown(": ".join(filter(None, (request.error_kind, request.error)))),
            claim=request.epoch,
            replayed_by=[claim for claim in self._claims if claim > request.epoch],
            drifted=asked.get("drifted", []),
            began=request.started_at,
            ended=request.ended_at,
        )

    def _tool_calls(
        self, call: str, answer: Mapping[str, Any], steps: list[Step], outputs: Sequence[str]
    ) -> list[ToolCall]:
        """The tool calls of an answer, in its order; then other steps recorded before the next request."""
        found, left = [], list(steps)
        for part in answer.get("parts", ()):
            if part["part_kind"] != "tool-call":
                continue
            tool, call_id = part["tool_name"], part["tool_call_id"]
            step = next((one for one in left if _names(one) == (tool, call_id)), None)
            if step:
                left.remove(step)
            found.append(self._tool_call(call, part, step, is_output=tool in outputs))
        return [*found, *(_performed(call, step) for step in left)]

    def _tool_call(self, call: str, part: Mapping[str, Any], step: Step | None, *, is_output: bool) -> ToolCall:
        tool, call_id, given = part["tool_name"], part["tool_call_id"], _arguments(part)
        if question := self._approval(f"approval:{call}: {tool} {call_id} {Approval.ANSWER}"):
            return _asked_of_a_person(call, question, part, step)
        approval = self._approval(f"approval:{call}: {tool} {call_id}")
        about: dict[str, Any] = {"approval": approval.pk, "decision": approval.decision} if approval else {}
        if step is None:
            status = _status_of(approval) if approval else "output" if is_output else "called"
            return ToolCall(key="", tool=tool, call_id=call_id, status=status, arguments=_shown_json(given), **about)
        performed, used = _performed(call, step), _asked(step).get("arguments")
        edited = _shown_json(used) if approval and approval.decision == Approval.Decision.EDIT else None
        return ToolCall(**{**vars(performed), "arguments": _shown_json(given), "edited_arguments": edited, **about})

    def _approval(self, key: str) -> Approval | None:
        found = next((one for one in self._approvals if _is_or_numbered(one.wait.key, key)), None)
        if found:
            self._approvals.remove(found)
        return found


def _claims_of(run: Run) -> list[int]:
    """Epochs of the claims that executed the run's body."""
    ended = run.attempts.exclude(outcome=Attempt.Outcome.RELEASED).order_by("epoch").values_list("epoch", flat=True)
    return [*ended, *([run.epoch] if run.status == RunStatus.RUNNING else [])]


def _performed(call: str, step: Step) -> ToolCall:
    tool, call_id = _names(step)
    output = step.output if isinstance(step.output, dict) else {"result": step.output}
    return ToolCall(
        key=step.key,
        tool=tool or step.key.removeprefix(f"{call}:"),
        call_id=call_id,
        status=step.status,
        arguments=_shown_json(_asked(step).get("arguments")),
        result=_shown_json(output.get("result", output.get("message", output or None))),
        is_untrusted=_asked(step).get("untrusted", False),
        error=_shown(": ".join(filter(None, (step.error_kind, step.error)))),
        effect=step.effect,
        attempts=step.attempts,
        claim=step.epoch,
        began=step.started_at,
        ended=step.ended_at,
    )


def _asked_of_a_person(call: str, question: Approval, part: Mapping[str, Any], step: Step | None) -> ToolCall:
    """A call whose result is what a person answers: the step of the tool has only deferred it."""
    about = (
        vars(_performed(call, step))
        if step
        else {"key": "", "tool": part["tool_name"], "call_id": part["tool_call_id"]}
    )
    is_open = question.wait.status == "open"
    given = {
        "arguments": _shown_json(_arguments(part)),
        "status": "open" if is_open else "done",
        "result": None if is_open else _shown_json(_reply(question)),
        "approval": question.pk,
        "decision": question.decision,
    }
    return ToolCall(**{**about, **given})


def _reply(question: Approval) -> str:
    decided = question.decided_arguments if isinstance(question.decided_arguments, dict) else {}
    if question.decision == Approval.Decision.EDIT:
        return str(decided.get(Approval.ANSWER, ""))
    return ": ".join(filter(None, (question.status, question.reason)))


def _asked(step: Step) -> dict[str, Any]:
    """The request that `agents.llm` kept with the step; empty where the content was removed."""
    kept = step.arguments[0] if isinstance(step.arguments, list) and step.arguments else None
    return kept if isinstance(kept, dict) else {}


def _answer(request: Step) -> dict[str, Any]:
    recorded = request.output.get("answer") if isinstance(request.output, dict) else None
    if not isinstance(recorded, dict):
        return {}
    answer = recorded.get("response", recorded)  # of a streamed one
    return answer if isinstance(answer, dict) else {}


def _names(step: Step) -> tuple[str, str]:
    asked = _asked(step)
    return asked.get("tool") or "", asked.get("call") or ""


def _status_of(approval: Approval) -> str:
    if approval.wait.status == "open":
        return "open"
    return "called" if approval.decision in (Approval.Decision.APPROVE, Approval.Decision.EDIT) else "denied"


def _is_or_numbered(key: str, wanted: str) -> bool:
    return re.fullmatch(rf"{re.escape(wanted)}( \d+)?", key) is not None


def _arguments(part: Mapping[str, Any]) -> Any:
    """Some providers give them as text. It stays one if it is no JSON that can be shown: NaN, a lone surrogate, too deep."""
    given = part.get("args")
    if not isinstance(given, str):
        return given
    try:
        return storable(json.loads(given), "it")
    except (ValueError, RecursionError, Permanent):
        return given


def _content(part: Mapping[str, Any]) -> str:
    content = part.get("content", "")
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _fenced_apart(message: Mapping[str, Any], mark: str) -> Iterator[Part]:
    """The parts of a text in front of a fence, within it and behind it."""
    kind, tool = message.get("kind", ""), message.get("tool", "")
    fence = rf'<untrusted-data mark="{re.escape(mark)}">\n(.*?)\n</untrusted-data mark="{re.escape(mark)}">'
    pieces = re.split(fence, message.get("text", ""), flags=re.DOTALL) if mark else [message.get("text", "")]
    for number, text in enumerate(pieces):
        if text.strip():
            is_untrusted, is_history = number % 2 == 1, message.get("history", False)
            yield Part(
                kind=kind, tool=tool, text=_shown(text.strip()), is_untrusted=is_untrusted, is_history=is_history
            )


def _shown(text: str, longest: int = LONGEST) -> str:
    text = as_text(text)
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text) - longest:,} more characters)"


def _shown_json(value: Any) -> Any:
    """JSON unchanged, or as text where it is long."""
    if isinstance(value, str):
        return _shown(value)
    try:
        value = storable(value, "it")
    except Permanent:
        return _shown(repr(value))
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= LONGEST else _shown(text)


def _shown_tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tools unchanged; where they are long, each with the beginning of its description and the names of its
    parameters.
    """
    told: list[dict[str, Any]] = redacted_json(tools)
    if len(json.dumps(told, ensure_ascii=False)) <= LONGEST:
        return told
    return [
        {
            "name": tool["name"],
            "description": _shown(tool["description"], DESCRIPTION),
            "parameters": {"properties": {name: {} for name in parameters_of(tool)}},
        }
        for tool in told
    ]


def parameters_of(tool: Mapping[str, Any]) -> list[str]:
    """The names of a tool's parameters; its schema may be one of a stranger."""
    schema = tool.get("parameters")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return list(properties) if isinstance(properties, dict) else []
