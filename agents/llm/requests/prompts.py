"""The content of each model request of a call, kept with its step for the transcript, and its fingerprint, which shows
whether a replay would send the same.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from pydantic_ai.messages import (
    BaseToolReturnPart,
    BinaryContent,
    InstructionBaselinePart,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    RetryFeedbackPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters

# Settings of a model that may carry keys, or have no end.
NOT_KEPT = frozenset({"extra_headers", "extra_body", "timeout"})


class Prompts:
    """The requests of one call, in their order. Each is stored as its difference to the one before. The history of a
    named session is not kept: the session has it.
    """

    def __init__(self, session: Sequence[ModelMessage] | None = None) -> None:
        self._session = session
        self.journaled: set[tuple[str, str]] = set()  # calls (tool, id) whose results their own steps keep
        self._messages = 0
        self._fingerprint = ""
        self._before: dict[str, Any] = {}

    def next(
        self, messages: Sequence[ModelMessage], settings: Mapping[str, Any] | None, parameters: ModelRequestParameters
    ) -> dict[str, Any]:
        """The new content of this request: the parts of its messages; instructions, tools and settings where they
        changed. `fingerprint` stands for the whole prompt up to here.
        """
        begins = self._messages + 1 if 0 < self._messages < len(messages) else 0  # behind the last answer
        if self._messages and not begins:
            begins = len(messages) - 1  # a processor of the history made it shorter
        told: dict[str, Any] = {
            "instructions": _instructions(messages, parameters),
            "tools": [_tool(tool) for tool in (*parameters.function_tools, *parameters.output_tools)],
            "settings": {name: value for name, value in (settings or {}).items() if name not in NOT_KEPT},
        }
        parts = [part for message in messages[begins:] for part in _parts(message)]
        if not self._messages and self._session is not None:
            parts = _behind(self._session, parts)
        elif not self._messages:
            _mark_history(messages, parts)
        self._messages = len(messages)
        kept = [part for part in parts if (part.get("tool"), part.get("call")) not in self.journaled]
        # A budget that begins or ends in the middle of a run bounds the answer, and changes no prompt.
        same = {**told, "settings": {name: value for name, value in told["settings"].items() if name != "max_tokens"}}
        self._fingerprint = _digest([self._fingerprint, kept, same])
        changed = {name: value for name, value in told.items() if value and value != self._before.get(name)}
        self._before = told
        outputs = [tool.name for tool in parameters.output_tools]
        return {"fingerprint": self._fingerprint, "parts": kept, "output_tools": outputs, **changed}


def _mark_history(messages: Sequence[ModelMessage], parts: list[dict[str, Any]]) -> None:
    for part in parts[: sum(len(list(_parts(message))) for message in messages[:-1])]:
        part["history"] = True


def _behind(session: Sequence[ModelMessage], parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts after those of the session. System prompts, which stand before them, are the agent's own. Counted by parts:
    messages on the border are merged."""
    own = [part for part in parts if part["kind"] == "system"]
    others = [part for part in parts if part["kind"] != "system"]
    return [*own, *others[sum(len(list(_parts(message))) for message in session) :]]


def _instructions(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> str:
    if parameters.instruction_parts:
        return InstructionPart.join(parameters.instruction_parts) or ""
    last = messages[-1] if messages else None
    return (last.instructions or "") if isinstance(last, ModelRequest) else ""


def _tool(tool: Any) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters_json_schema}


def _parts(message: ModelMessage) -> Iterable[dict[str, Any]]:
    for part in message.parts:
        match part:
            case SystemPromptPart():
                yield {"kind": "system", "text": part.content}
            case UserPromptPart():
                contents = [part.content] if isinstance(part.content, str) else part.content
                yield from ({"kind": "user", "text": _text(content)} for content in contents)
            case BaseToolReturnPart():
                told = {"tool": part.tool_name, "call": part.tool_call_id, "text": part.model_response_str()}
                yield {"kind": "tool-return", **told}
            case RetryFeedbackPart():
                yield {"kind": "retry", "text": _text(part.content)}
            case InstructionBaselinePart():
                continue  # never sent to a model
            case TextPart():
                yield {"kind": "answer", "text": part.content}
            case ThinkingPart():
                yield {"kind": "thinking", "text": part.content}
            case ToolCallPart():
                yield {"kind": "tool-call", "tool": part.tool_name, "text": part.args_as_json_str()}
            case _:
                yield {"kind": part.part_kind, "text": _text(getattr(part, "content", ""))}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, (dict, list)):
        return json.dumps(content, ensure_ascii=False, default=str)
    if isinstance(content, BinaryContent):
        digest = sha256(content.data).hexdigest()[:16]
        return f"({content.media_type}, {len(content.data):,} bytes, {digest})"
    return str(getattr(content, "url", None) or getattr(content, "content", content))


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True, default=repr).encode()).hexdigest()[:16]
