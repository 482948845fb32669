"""The conversation of a run with its models, turn by turn, on the page of the run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.http import HttpRequest
from django.template.defaultfilters import pluralize
from django.urls import reverse
from django.utils.safestring import SafeString

from config.console.parts.html import shown
from config.console.parts.links import link, page
from config.console.parts.moments import moment
from config.console.parts.sections import Cell, pretty
from config.console.runs.words import took
from runs.durable.transcript import (
    Call,
    Part,
    ToolCall,
    Transcript,
    Turn,
    Usage,
    parameters_of,
    transcript_of,
)
from runs.models import Run

BUILTIN = "Built-in model: deterministic, without a provider."
ERASED = "Prompts, answers and payloads of tools have been erased; tokens and prices stay."
FOLDED = 800  # characters, or lines, above which a text is folded
LINES = 12
LABELS = {
    "system": "System prompt",
    "user": "Prompt",
    "tool-return": "Tool result",
    "retry": "Retry prompt",
    "answer": "Answer",
    "thinking": "Thinking",
    "tool-call": "Tool call",
}
STATUSES = {
    "open": "waits for approval",
    "denied": "denied",
    "output": "the answer",
    "called": "no result yet",
    "started": "started, not ended",
}


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A text with its label; one that is folded shows its beginning."""

    label: str
    text: str
    is_folded: bool = False
    is_untrusted: bool = False

    @property
    def begins(self) -> str:
        text = str(shown(self.text))
        line = " ".join(text[:200].split())
        return f"{line[:110]}…" if len(line) > 110 or len(text) > len(line) else line


@dataclass(frozen=True, kw_only=True)
class ToolView:
    name: str
    status: str
    state: str
    about: Sequence[Cell]
    passages: Sequence[Passage]


@dataclass(frozen=True, kw_only=True)
class TurnView:
    title: str
    state: str
    about: Sequence[Cell]
    warning: str
    passages: Sequence[Passage]
    answer: Sequence[Passage]
    tools: Sequence[ToolView]


@dataclass(frozen=True, kw_only=True)
class CallView:
    key: str
    about: Sequence[Cell]
    steps: Sequence[ToolView]
    turns: Sequence[TurnView]


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """A page of the transcript."""

    template: ClassVar[str] = "admin/console/transcript.html"
    note: str
    warnings: Sequence[str]
    calls: Sequence[CallView]
    links: Sequence[tuple[int, str, bool]]


def conversation(run: Run, request: HttpRequest) -> list[Conversation]:
    """None for a run that never called `run.llm`."""
    asked = request.GET.get("turns", "")
    transcript = transcript_of(run, int(asked[:9]) if asked.isdecimal() else None)
    if not transcript.calls:
        return []
    run_url = reverse("admin:runs_run_change", args=[run.pk])
    warnings = [BUILTIN] if transcript.usage.builtin else []
    return [
        Conversation(
            note=in_words(transcript),
            warnings=[*warnings, *([] if transcript.is_kept else [ERASED])],
            calls=[_call(call, run_url) for call in transcript.calls],
            links=_links(run, transcript),
        )
    ]


def spent(usage: Usage) -> str:
    """Tokens, and their price or a note that there was no provider."""
    tokens = f"{usage.input_tokens + usage.output_tokens:,} tokens"
    price = priced(usage) if usage.requests > usage.builtin else ""
    return " · ".join(filter(None, (tokens, price, BUILTIN if usage.builtin else "")))


def priced(usage: Usage) -> str:
    if usage.unpriced == usage.requests - usage.builtin:
        return "price unknown"
    return f"{dollars(usage.cost)}{f' and {usage.unpriced} without a known price' if usage.unpriced else ''}"


def dollars(cost: Decimal) -> str:
    return f"${cost:.2f}" if cost >= 1 or not cost else f"${cost.normalize():.6f}".rstrip("0")


def in_words(transcript: Transcript) -> str:
    usage = transcript.usage
    requests = f"{usage.requests:,} request{pluralize(usage.requests)} to models"
    tools = f"{transcript.tool_calls:,} call{pluralize(transcript.tool_calls)} of tools"
    tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
    price = priced(usage) if usage.requests > usage.builtin else ""
    return " · ".join(filter(None, (requests, tools, tokens, price)))


def _links(run: Run, transcript: Transcript) -> list[tuple[int, str, bool]]:
    url = reverse("admin:runs_run_change", args=[run.pk])
    numbers = range(1, transcript.pages + 1) if transcript.pages > 1 else ()
    return [(one, f"{url}?{urlencode({'turns': one})}#conversation", one == transcript.page) for one in numbers]


def _call(call: Call, run_url: str) -> CallView:
    return CallView(
        key=call.key,
        about=[
            call.model,
            moment(call.began),
            *([f"turn in session {call.session}"] if call.session else []),
            *(["given untrusted data"] if call.is_untrusted else []),
        ],
        steps=[_tool(step, run_url) for step in call.steps],
        turns=[_turn(turn, run_url) for turn in call.turns],
    )


def _turn(turn: Turn, run_url: str) -> TurnView:
    changed = ", ".join(turn.drifted)
    return TurnView(
        title=f"Turn {turn.number}" if turn.number else turn.key,
        state=turn.status,
        about=list(_about_turn(turn, run_url)),
        warning=f"The prompt of {changed} would be another one today; its recorded answer was kept." if changed else "",
        passages=[
            *_passages("Instructions", turn.instructions),
            *(_passage(part) for part in turn.prompt),
            *_passages("Tools", "\n".join(_signature(tool) for tool in turn.tools), folded=True),
            *_passages("Settings", pretty(turn.settings) if turn.settings else "", folded=True),
        ],
        answer=[*(_passage(part) for part in turn.answer), *_passages("Error", turn.error)],
        tools=[_tool(call, run_url) for call in turn.tool_calls],
    )


def _about_turn(turn: Turn, run_url: str) -> Iterator[Cell]:
    if turn.model:
        yield turn.model
    if turn.usage.requests:
        cached = f" ({turn.usage.cache_read_tokens:,} cached)" if turn.usage.cache_read_tokens else ""
        yield f"{turn.usage.input_tokens:,} tokens in{cached}, {turn.usage.output_tokens:,} out"
    if turn.cost is not None:
        yield dollars(turn.cost)
    elif turn.usage.unpriced:
        yield "price unknown"
    if turn.ended:
        yield took(turn.began, turn.ended)
    yield moment(turn.began)
    if turn.attempts > 1:
        yield f"{turn.attempts} attempts"
    if turn.finish_reason not in ("", "stop", "tool_call"):
        yield f"ended: {turn.finish_reason}"
    yield f"requested by claim {turn.claim}" if turn.claim else "copied by the fork"
    if turn.replayed_by:
        claims = [str(claim) for claim in turn.replayed_by]
        shown = ", ".join(claims if len(claims) <= 5 else [*claims[:4], f"… {claims[-1]}"])
        yield f"replayed by claim{pluralize(len(claims))} {shown}, without a new request"
    yield _entry(run_url, turn.key)


def _tool(call: ToolCall, run_url: str) -> ToolView:
    return ToolView(
        name=call.tool,
        status=STATUSES.get(call.status, call.status),
        state={"denied": "failed", "output": "done", "called": "waiting"}.get(call.status, call.status),
        about=list(_about_tool(call, run_url)),
        passages=[
            *_passages("Arguments", _json(call.arguments)),
            *_passages("Arguments as edited", _json(call.edited_arguments)),
            *_passages("Result", _json(call.result), is_untrusted=call.is_untrusted),
            *_passages("Error", call.error),
        ],
    )


def _about_tool(call: ToolCall, run_url: str) -> Iterator[Cell]:
    if call.approval:
        yield link(page("runs_approval", call.approval), f"approval: {call.decision or 'open'}")
    if call.effect:
        yield call.effect
    if call.attempts > 1:
        yield f"{call.attempts} attempts"
    if call.began and call.ended:
        yield took(call.began, call.ended)
    if call.key:
        yield _entry(run_url, call.key)


def _entry(url: str, key: str) -> SafeString:
    return link(f"{url}?{urlencode({'entry': key})}#journal-entry", "journal")


def _passage(part: Part) -> Passage:
    label = LABELS.get(part.kind, part.kind)
    if part.tool:
        label = f"{label}: {part.tool}"
    if part.is_history:
        label = f"{label} (history)"
    folded = part.kind == "thinking" or part.is_history or _is_long(part.text)
    return Passage(
        label=f"{label}, untrusted" if part.is_untrusted else label,
        text=part.text,
        is_folded=folded,
        is_untrusted=part.is_untrusted,
    )


def _passages(label: str, text: str, *, folded: bool = False, is_untrusted: bool = False) -> list[Passage]:
    if not text:
        return []
    label = f"{label}, untrusted" if is_untrusted else label
    return [Passage(label=label, text=text, is_folded=folded or _is_long(text), is_untrusted=is_untrusted)]


def _is_long(text: str) -> bool:
    return len(text) > FOLDED or text.count("\n") > LINES


def _json(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else pretty(value)


def _signature(tool: Mapping[str, Any]) -> str:
    """A tool as one line: its name, its parameters and its description."""
    about = " ".join((tool.get("description") or "").split())
    return f"{tool['name']}({', '.join(parameters_of(tool))}){f': {about}' if about else ''}"
