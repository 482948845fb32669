"""A request to a model of openai-agents and its answer: as the journal keeps them, and as the SDK gets them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from openai._models import construct_type  # as the client reads an answer: what providers add or leave out is no error
from openai.types.responses import Response, ResponseCompletedEvent, ResponseOutputItem, ResponseUsage

from agents.frameworks.tools import name_of
from agents.guards.openai_agents import Given
from agents.kernel.redaction import redacted, redacted_json
from agents.llm.requests.answers import recordable
from agents.openai.sdk import sdk

# Items that no stranger wrote: of the model, of a handoff, of the SDK.
OWN = frozenset({"message", "function_call", "custom_tool_call", "reasoning", "item_reference", "compaction"})
CALL = ("function_call", "custom_tool_call")
OF_CALL = ("_call_output", "_call", "_output")
# Tools of the SDK whose calls have other names.
NAMED_OTHERWISE = {"mcp_": "hosted_mcp", "computer": "computer_use_preview", "program": "programmatic_tool_calling"}
COUNTS = ("input_tokens", "output_tokens", "total_tokens")
DETAILS = {
    "input_tokens_details": ("cached_tokens", "cache_write_tokens"),
    "output_tokens_details": ("reasoning_tokens",),
}
# Settings that may carry keys, or have no end.
NOT_KEPT = frozenset({"extra_headers", "extra_body", "extra_query", "extra_args", "timeout", "retry"})


def clean(given: Given) -> dict[str, Any]:
    """The request without secrets."""
    instructions = given["system_instructions"]
    return {
        **given,
        "system_instructions": instructions and redacted(instructions),
        "input": redacted_json(items(given["input"])),
        **({"prompt": redacted_json(prompt)} if (prompt := given.get("prompt")) else {}),
    }


def items(input: Any) -> list[Any]:
    return [{"role": "user", "content": input}] if isinstance(input, str) else list(input)


def kept(given: Given, model: str, begins: int) -> dict[str, Any]:
    """What its step keeps, for the transcript: the items from `begins` on."""
    tools = [{"name": name_of(tool), "description": "", "parameters": {}} for tool in given["tools"]]
    settings = _settings(given["model_settings"])
    handoffs = [one.tool_name for one in given["handoffs"]]
    schema = given["output_schema"]
    whole = [
        given["system_instructions"],
        given["input"],
        tools,
        settings,
        handoffs,
        schema and schema.name(),
        model,
        given.get("prompt"),
    ]
    fingerprint = sha256(_text(whole).encode()).hexdigest()[:16]
    told = {
        "parts": [part for item in given["input"][begins:] for part in _parts(item)],
        "instructions": given["system_instructions"] or "",
        "tools": tools,
        "settings": json.loads(_text(settings)),
    }
    return {"fingerprint": fingerprint, **{name: recordable(value) for name, value in told.items() if value}}


def tools_read(input: Iterable[Any]) -> set[str]:
    """The tools whose results are among the items, those that a provider runs too ("web_search")."""
    found, names = set(), {}
    for item in input:
        kind = str(_of(item, "type") or "message")
        if kind in CALL:
            names[_of(item, "call_id")] = str(_of(item, "name"))
        if kind not in OWN:
            found.add(names.get(_of(item, "call_id")) or str(_of(item, "name") or _bare(kind)))
    return found


def tools_called(output: Sequence[Any]) -> set[str]:
    """The tools that an answer calls, by the names under which they are offered: those that a provider runs too."""
    kinds = [str(_of(item, "type")) for item in output if _of(item, "type") not in OWN]
    bare = {"mcp_" if kind.startswith("mcp_") else _bare(kind) for kind in kinds}
    return functions_called(output) | {NAMED_OTHERWISE.get(kind, kind) for kind in bare}


def functions_called(output: Sequence[Any]) -> set[str]:
    return {str(_of(item, "name")) for item in output if _of(item, "type") in CALL}


def recorded(answer: Any, fingerprint: str) -> dict[str, Any]:
    """An answer as its step records it: what a transcript reads, and the answer itself."""
    output = [item.model_dump(mode="json", exclude_unset=True) for item in answer.output]
    response = {
        "output": output,
        "usage": _usage(answer.usage),
        "response_id": answer.response_id,
        "request_id": answer.request_id,
    }
    told = {
        "parts": [part for item in output for part in _answer_parts(item)],
        "finish_reason": "",
        "message": response,
    }
    return {"prompt": fingerprint, "answer": recordable(json.loads(_text(told)))}


def answer_of(kept: Mapping[str, Any]) -> Any:
    """The `ModelResponse` of a recorded answer. A person who resolved the request gave a text."""
    response = kept.get("message") or {"output": [_message("".join(one.get("content", "") for one in kept["parts"]))]}
    return sdk().ModelResponse(
        output=[construct_type(type_=ResponseOutputItem, value=item) for item in response["output"]],
        usage=sdk().Usage(requests=1, **(response.get("usage") or {})),
        response_id=response.get("response_id"),
        request_id=response.get("request_id"),
    )


def completed(answer: Any, model: str) -> ResponseCompletedEvent:
    """A stream of one piece."""
    response = Response.model_construct(
        id=answer.response_id or "",
        object="response",
        created_at=0.0,
        model=model,
        output=answer.output,
        status="completed",
        usage=ResponseUsage.model_validate(_usage(answer.usage)),
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
    )
    return ResponseCompletedEvent.model_construct(type="response.completed", sequence_number=0, response=response)


def in_stream(events: Iterable[Any]) -> Any:
    """The answer that a stream has ended with."""
    for event in events:
        if event.type in ("response.completed", "response.incomplete"):
            found = event.response
            return sdk().ModelResponse(
                output=list(found.output),
                usage=sdk().Usage(requests=1, **(_usage(found.usage) if found.usage else {})),
                response_id=found.id,
                request_id=getattr(found, "_request_id", None),
            )
    raise ValueError("the stream of the model has ended without an answer")


def text_of(output: Iterable[Any]) -> str:
    return "".join(part.get("content", "") for item in output for part in _answer_parts(item) if "content" in part)


def asked_for(call: Any) -> str:
    """What a call that needs approval is going to do: its arguments, or all of it where it has none, as that of a shell."""
    item = call.raw_item
    whole = item if isinstance(item, Mapping) else item.model_dump(mode="json", exclude_unset=True)
    return call.arguments or _text(whole)


def _bare(kind: str) -> str:
    return next((kind.removesuffix(end) for end in OF_CALL if kind.endswith(end)), kind)


def _usage(used: Any) -> dict[str, Any]:
    """What some providers do not count is 0: the SDK wants numbers."""
    counts = {name: getattr(used, name) or 0 for name in COUNTS}
    details = {
        name: {one: getattr(getattr(used, name, None), one, None) or 0 for one in ones}
        for name, ones in DETAILS.items()
    }
    return {**counts, **details}


def _message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": "", "type": "message", "role": "assistant", "status": "completed", "content": content}


def _answer_parts(item: Any) -> Iterable[dict[str, Any]]:
    kind = _of(item, "type")
    if kind == "message":
        text = "".join(str(_of(one, "text") or _of(one, "refusal") or "") for one in _of(item, "content") or ())
        yield {"part_kind": "text", "content": text}
    elif kind in CALL:
        yield {
            "part_kind": "tool-call",
            "tool_name": _of(item, "name"),
            "tool_call_id": _of(item, "call_id") or "",
            "args": _of(item, "arguments") or _of(item, "input") or "",
        }
    elif kind not in OWN:
        yield {"part_kind": "builtin-tool-call", "tool_name": kind, "tool_call_id": _of(item, "id") or "", "args": {}}


def _parts(item: Any) -> Iterable[dict[str, Any]]:
    kind = _of(item, "type") or "message"
    if kind == "message":
        role = {"assistant": "answer", "developer": "system"}.get(_of(item, "role"), _of(item, "role"))
        yield {"kind": role, "text": _said(_of(item, "content"))}
    elif kind in CALL:
        yield {
            "kind": "tool-call",
            "tool": _of(item, "name"),
            "text": str(_of(item, "arguments") or _of(item, "input")),
        }
    elif kind not in OWN:
        told = {"tool": kind, "call": _of(item, "call_id") or _of(item, "id") or ""}
        yield {"kind": "tool-return", **told, "text": _said(_of(item, "output"))}


def _said(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(_of(one, "text")) if _of(one, "text") else f"({_of(one, 'type')})" for one in content)
    return _text(content)


def _settings(settings: Any) -> dict[str, Any]:
    told = {name: getattr(settings, name) for name in getattr(settings, "__dataclass_fields__", ())}
    return {name: value for name, value in told.items() if value is not None and name not in NOT_KEPT}


def _of(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
