"""The answer of a heartbeat's turn. It is structured, so that "nothing to report" is a value and not a phrase in a
text.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from math import ceil, isfinite
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, model_validator
from pydantic_ai import Agent, RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ToolCallPart

from agents.checklists.run_checklist import Checked, DueItem, ItemOutcome
from agents.exceptions import StepFailed
from agents.kernel.effects import Urgency

INSTRUCTIONS = """\
You keep watch. A clock or an event has woken you; most of the time there is nothing to say, and saying nothing is a good answer.
Check every numbered item with your tools, and report each: "ok" if there is nothing to say, "news" if a person should know of \
it, "failed" if you could not check it. A failed item does not end the work: go on with the others.
Set "notify" only if a person should know something now, and write the whole message in "text": it is all they see."""


LONGEST_CHECK = 366 * 1440  # minutes


def _cut(most: int) -> BeforeValidator:
    """Shorten a text that is too long: refusing it would lose the turn and the outcomes of all items."""
    return BeforeValidator(lambda said: f"{said[: most - 1]}…" if isinstance(said, str) and len(said) > most else said)


def _bounded(said: Any) -> Any:
    is_number = isinstance(said, (int, float)) and not isinstance(said, bool) and isfinite(said)
    return min(max(ceil(said), 1), LONGEST_CHECK) if is_number else said


class ItemVerdict(BaseModel):
    """The outcome of checking one item."""

    item: int = Field(description="the number of the item")
    outcome: ItemOutcome
    text: Annotated[str, _cut(1000)] = Field(
        default="", max_length=1000, description="what there is to say of it, or why it failed"
    )


class Verdict(BaseModel):
    """The result of a turn. Only `notify` decides whether a person is notified."""

    notify: bool = Field(description="whether a person should be told now")
    urgency: Urgency = "normal"
    text: Annotated[str, _cut(4000)] = Field(
        default="", max_length=4000, description="the message; empty if notify is false"
    )
    items: list[ItemVerdict] = Field(default_factory=list, description="one for each numbered item")
    next_check: Annotated[int | None, BeforeValidator(_bounded)] = Field(
        default=None, ge=1, le=LONGEST_CHECK, description="minutes until the next check is worthwhile; null: as planned"
    )

    @model_validator(mode="after")
    def has_something_to_say(self) -> "Verdict":
        if self.notify and not self.text.strip():
            raise ValueError("notify is true, so text must have the message")
        return self


class TellFailures(AbstractCapability[Any]):
    """Returns a tool's failure to the model instead of ending the turn: one item's failure does not abort the
    others.
    """

    async def on_tool_execute_error(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, error: Exception
    ) -> Any:
        if not isinstance(error, StepFailed):
            raise error
        raise ToolFailed(str(error)[:2000]) from error  # the error of an untrusted tool is fenced


def watcher(
    name: str, *, model: str | None, instructions: str, tools: Sequence[Callable[..., Any] | Any]
) -> Agent[Any, Verdict]:
    """The LLM agent of a heartbeat."""
    return Agent(
        model,
        name=name,
        output_type=Verdict,
        instructions="\n\n".join(filter(None, [INSTRUCTIONS, instructions.strip()])),
        tools=list(tools),
        defer_model_check=True,
    )


def prompt_of(items: Sequence[DueItem], now: datetime, reminders: Sequence[str] = ()) -> str:
    """The turn's prompt: the time, reminders from earlier turns, and the due items, numbered."""
    time = f"It is {now:%A, %Y-%m-%d %H:%M} UTC."
    told = [f"You asked to be reminded of this: {text}" for text in reminders]
    if not items:
        return "\n".join([time, *(told or ["Look for what your instructions name."])])
    # Indented, so that no line of a text looks like another item.
    texts = ["\n   ".join(item.text.splitlines()) for item in items]
    lines = [
        f"{number}. {text}{_before(item)}"
        for number, (text, item) in enumerate(zip(texts, items, strict=True), start=1)
    ]
    return "\n".join([time, *told, "Check these items:", *lines])


def outcomes_of(verdict: Verdict, items: Sequence[DueItem]) -> list[Checked]:
    """The outcome of each item; an item that the verdict leaves out has failed."""
    said: dict[int, ItemVerdict] = {}
    for one in verdict.items:
        said.setdefault(one.item, one)
    return [
        Checked(item.id, said[number].outcome, said[number].text)
        if number in said
        else Checked(item.id, "failed", "the answer does not mention it")
        for number, item in enumerate(items, start=1)
    ]


def _before(item: DueItem) -> str:
    if item.failures:
        return f" (could not be checked the last {item.failures} times)" if item.failures > 1 else " (failed last time)"
    return f" (last time: {item.last_outcome})" if item.last_outcome else ""
