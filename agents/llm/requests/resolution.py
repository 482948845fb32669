"""A person's resolution of a call whose outcome was unknown, as its step records it."""

from typing import Any

from pydantic_ai.durable_exec import JSON_CODEC, CallToolResult
from pydantic_ai.messages import ModelResponse, TextPart


def tool_output(result: Any) -> Any:
    """The recorded output of a tool call; The recorded output of a tool call; `result` is what the tool would have
    returned.
    """
    return JSON_CODEC.dump(CallToolResult, JSON_CODEC.load(CallToolResult, {"kind": "tool_return", "result": result}))


def model_output(result: Any, asked: Any) -> Any:
    """The recorded output of a model request; `result` is the text of the model's answer, `asked` the arguments of its
    step. ValueError: `result` is not a text.
    """
    if not isinstance(result, str) or not result:
        raise ValueError(
            'the result of a request to a model is the text of its answer. With "did_not_happen" the request is sent again'
        )
    fingerprint = asked[0].get("fingerprint", "") if isinstance(asked, list) and asked else ""
    return {"prompt": fingerprint, "answer": JSON_CODEC.dump(ModelResponse, ModelResponse(parts=[TextPart(result)]))}
