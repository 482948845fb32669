"""The messages of a turn: as they are kept, and as text."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.messages import (
    BaseToolReturnPart,
    InstructionBaselinePart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    RetryFeedbackPart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    UserPromptPart,
    repair_messages,
)

PART_LENGTH = 2_000  # characters of a part as text


def kept(messages: Sequence[ModelMessage]) -> list[dict[str, Any]]:
    """The messages of a turn as JSON, without instructions and system prompts: the next agent has its own. A tool call
    without a result gets a placeholder result.
    """
    own = [_without_instructions(message) for message in messages]
    whole = repair_messages([message for message in own if message.parts])
    dumped: list[dict[str, Any]] = ModelMessagesTypeAdapter.dump_python(whole, mode="json", exclude_none=True)
    return dumped


def loaded(stored: Sequence[dict[str, Any]]) -> list[ModelMessage]:
    return ModelMessagesTypeAdapter.validate_python(list(stored))


@dataclass(frozen=True, kw_only=True)
class Said:
    """A part of a turn for people to read. `who`: prompt, answer, the call or the result of a tool."""

    who: str
    text: str


def said_in(stored: Sequence[dict[str, Any]]) -> list[Said]:
    """The conversation of a turn as text, without the model's thinking."""
    return [said for message in loaded(stored) for said in _said(message)]


def as_text(stored: Sequence[dict[str, Any]]) -> str:
    """A turn for a model that summarises it; long parts are cut."""
    return "\n".join(f"{said.who}: {_cut(said.text)}" for said in said_in(stored))


def _without_instructions(message: ModelMessage) -> ModelMessage:
    if not isinstance(message, ModelRequest):
        return message
    parts = [part for part in message.parts if not isinstance(part, SystemPromptPart | InstructionBaselinePart)]
    return replace(message, parts=parts, instructions=None)


def _said(message: ModelMessage) -> Iterator[Said]:
    for part in message.parts:
        match part:
            case UserPromptPart():
                contents = [part.content] if isinstance(part.content, str) else part.content
                yield from (Said(who="prompt", text=_text(content)) for content in contents)
            case BaseToolReturnPart():
                yield Said(who=f"{part.tool_name} gave", text=part.model_response_str())
            case RetryFeedbackPart():
                yield Said(who="told", text=_text(part.content))
            case TextPart():
                yield Said(who="answer", text=part.content)
            case ToolCallPart():
                yield Said(who=f"calls {part.tool_name}", text=part.args_as_json_str())


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, dict | list):
        return json.dumps(content, ensure_ascii=False, default=str)
    return str(getattr(content, "content", None) or getattr(content, "url", None) or type(content).__name__)


def _cut(text: str) -> str:
    return text if len(text) <= PART_LENGTH else f"{text[:PART_LENGTH]}… ({len(text) - PART_LENGTH:,} more characters)"
