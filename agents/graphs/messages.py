"""A request to a model of LangChain and its answer: as the journal keeps them, and as the model gets them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ToolMessage,
    message_chunk_to_message,
    message_to_dict,
    messages_from_dict,
)

from agents.frameworks.tools import name_of
from agents.kernel.redaction import redacted_json
from agents.llm.requests.answers import recordable

KINDS = {"human": "user", "ai": "answer", "tool": "tool-return", "system": "system"}
# Options that may carry keys, or have no end.
NOT_KEPT = frozenset({"extra_headers", "extra_body", "timeout", "headers", "tools", "functions"})


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request: its messages and options without secrets."""

    messages: Sequence[BaseMessage]
    options: Mapping[str, Any]
    stop: Sequence[str] | None = None
    kept: Mapping[str, Any] = field(default_factory=dict)  # what its step keeps, for the transcript

    @property
    def fingerprint(self) -> str:
        return str(self.kept["fingerprint"])

    @property
    def size(self) -> int:
        """In bytes, as JSON."""
        return len(_text([*map(message_to_dict, self.messages), dict(self.options)]).encode())


def asked(messages: Sequence[BaseMessage], options: Mapping[str, Any], stop: Sequence[str] | None) -> Asked:
    clean = [_redacted(message) for message in messages]
    tools = [{"name": name_of(tool), "description": "", "parameters": {}} for tool in options.get("tools") or ()]
    told: dict[str, Any] = {
        "parts": [part for message in clean for part in _parts(message)],
        "tools": tools,
        "settings": recordable(
            json.loads(_text({name: value for name, value in options.items() if name not in NOT_KEPT}))
        ),
    }
    fingerprint = sha256(_text(told).encode()).hexdigest()[:16]
    return Asked(messages=clean, options=options, stop=stop, kept=recordable({"fingerprint": fingerprint, **told}))


def tools_answered(messages: Sequence[BaseMessage]) -> set[str]:
    """The tools whose results are among the messages."""
    names = {call["id"]: call["name"] for one in messages if isinstance(one, AIMessage) for call in one.tool_calls}
    return {one.name or names.get(one.tool_call_id, "") for one in messages if isinstance(one, ToolMessage)}


def recorded(message: AIMessage, fingerprint: str) -> dict[str, Any]:
    """An answer as its step records it: what a transcript reads, and the message itself."""
    whole = json.loads(_text(message_to_dict(message)))
    parts = [{"part_kind": "text", "content": message.text}] if message.text else []
    calls = [
        {"part_kind": "tool-call", "tool_name": call["name"], "tool_call_id": call["id"] or "", "args": call["args"]}
        for call in message.tool_calls
    ]
    answer = {"parts": [*parts, *calls], "finish_reason": _finish_reason(message), "message": whole}
    return {"prompt": fingerprint, "answer": recordable(answer)}


def message_in(answer: Mapping[str, Any]) -> AIMessage:
    """The message of a recorded answer. A person who resolved the request gave a text."""
    if "message" not in answer:
        return AIMessage("".join(part.get("content", "") for part in answer["parts"]))
    [message] = messages_from_dict([answer["message"]])
    if not isinstance(message, AIMessage):
        raise TypeError(f"the recorded answer is no AIMessage but {type(message).__name__}")
    return message


def whole(chunks: Sequence[AIMessageChunk]) -> AIMessage:
    """The message whose pieces these are."""
    message: Any = chunks[0]
    for chunk in chunks[1:]:
        message = message + chunk
    answer = message_chunk_to_message(message)
    if not isinstance(answer, AIMessage):
        raise TypeError(f"the model streams no AIMessage but {type(answer).__name__}")
    return answer


def as_chunk(message: AIMessage) -> AIMessageChunk:
    kept = {name: value for name, value in message.model_dump().items() if name != "type"}
    return AIMessageChunk(**kept)


def _redacted(message: BaseMessage) -> BaseMessage:
    changed: dict[str, Any] = {}
    if (content := redacted_json(message.content)) != message.content:
        changed["content"] = content
    if isinstance(message, AIMessage) and (calls := redacted_json(message.tool_calls)) != message.tool_calls:
        changed["tool_calls"] = calls
    return message.model_copy(update=changed) if changed else message


def _parts(message: BaseMessage) -> list[dict[str, Any]]:
    kind = KINDS.get(message.type, message.type)
    about = {"tool": message.name or "", "call": message.tool_call_id} if isinstance(message, ToolMessage) else {}
    text = [{"kind": kind, **about, "text": message.text}] if message.text or about else []
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    return [*text, *({"kind": "tool-call", "tool": call["name"], "text": _text(call["args"])} for call in calls)]


def _finish_reason(message: AIMessage) -> str:
    about = message.response_metadata
    return str(about.get("finish_reason") or about.get("stop_reason") or "")


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
