"""The opening of a call: its entry in the journal, and which of its words are its author's. What strangers wrote is fenced, and
taints the run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any

from pydantic_ai.models import Model
from pydantic_ai.tools import DeferredToolResults

from agents.exceptions import Permanent
from agents.journal.concurrent import in_main_thread
from agents.journal.engine import Journal
from agents.journal.protocol import Place
from agents.kernel.tool_cap import narrowed
from agents.llm.context import LlmArguments, LlmContext
from agents.llm.strangers.addresses import without
from agents.llm.strangers.fences import fenced, fenced_answer, is_declared_trusted


@dataclass(frozen=True, kw_only=True)
class Words:
    """`own`: the words of the prompt that no stranger wrote. `from_strangers`: data that instructions may contain."""

    own: str
    from_strangers: Sequence[Any] = ()


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A call that has its entry in the journal. `asked` has fences around what strangers wrote."""

    asked: LlmArguments
    place: str  # the key of the call
    began: datetime
    mark: str  # of its fences
    tools: frozenset[str] | None  # that it may use; None: all
    words: Words


async def opened(journal: Journal, place: Place, asked: LlmArguments, context: LlmContext, model: Model) -> Opened:
    """Open the call, or read how it was opened, and taint the run if strangers wrote some of it."""
    key, entry = await in_main_thread(
        journal.named_value, place, lambda: _entry(asked, context, model.model_id), kind="llm"
    )
    if entry is None:
        raise Permanent(f"the content of {key!r} has been erased from the journal, so it cannot be replayed")
    options, is_strange = _with_fenced_results(asked.options, entry["mark"])
    if asked.untrusted is not None or entry["untrusted"] or entry.get("strangers") or is_strange:
        context.taint()
    words = await _words(asked, context)
    prompt = asked.prompt if asked.untrusted is None else fenced(str(asked.prompt), asked.untrusted, entry["mark"])
    return Opened(
        asked=replace(asked, prompt=prompt, options=options),
        place=key,
        began=datetime.fromisoformat(entry["began"]),
        mark=entry["mark"],
        tools=narrowed(context.tools, asked.tools),
        words=words,
    )


def _entry(asked: LlmArguments, context: LlmContext, model: str) -> dict[str, Any]:
    return {
        "began": datetime.now(UTC).isoformat(),
        "mark": token_hex(8),
        "model": model,
        "prompt": asked.prompt if isinstance(asked.prompt, str) else None,
        "untrusted": asked.untrusted is not None,
        **({"strangers": True} if not context.is_tainted() and context.from_strangers() else {}),
        **({"session": asked.session} if asked.session is not None else {}),
    }


def _with_fenced_results(options: dict[str, Any], mark: str) -> tuple[dict[str, Any], bool]:
    """Fence results from outside of calls that the model made, except those declared trusted. Is there any such
    result?
    """
    results: DeferredToolResults | None = options.get("deferred_tool_results")
    if results is None:
        return options, False
    strange = {call: answer for call, answer in results.calls.items() if not is_declared_trusted(answer)}
    fences = {call: fenced_answer(answer, mark) for call, answer in strange.items()}
    fenced_results = replace(results, calls={**results.calls, **fences})
    return {**options, "deferred_tool_results": fenced_results}, bool(strange)


async def _words(asked: LlmArguments, context: LlmContext) -> Words:
    own = asked.prompt if isinstance(asked.prompt, str) else ""
    if not context.is_tainted():
        return Words(own=own)
    if context.depth:
        return Words(own="")  # a model wrote the task
    from_strangers = [await in_main_thread(context.given), asked.untrusted]
    return Words(own=without(own, from_strangers), from_strangers=from_strangers)
