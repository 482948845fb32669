"""Take the secrets that this process knows out of requests to models."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import ToolDefinition

from agents.kernel.redaction import know, redacted, redacted_json, refresh

# Fields of messages with names and instants: a message without them could not be read again, and none quotes a text.
OF_THE_FORMAT = {
    "kind", "part_kind", "timestamp", "usage", "finish_reason", "outcome", "state", "tool_name", "tool_kind", "tool_call_id", "media_type",
    "parts",
}  # fmt: skip
SAID = {"description", "title", "default", "examples", "enum", "const"}  # keywords of a schema with texts


def learn(model: Model) -> None:
    """Learn the keys of the model's clients and the secrets of sources. Call it in the main thread, before a call of
    run.llm.
    """
    know(*_keys(model))
    refresh()


def redacted_messages(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    told = ModelMessagesTypeAdapter.dump_json(list(messages))
    if redacted(text := told.decode()) == text:
        return list(messages)
    clean = [
        {**_redacted_part(message), "parts": [_redacted_part(part) for part in message["parts"]]}
        for message in json.loads(told)
    ]
    return ModelMessagesTypeAdapter.validate_json(json.dumps(clean))


def _redacted_part(part: dict[str, Any]) -> dict[str, Any]:
    return {name: value if name in OF_THE_FORMAT else _redacted_field(name, value) for name, value in part.items()}


def _redacted_field(name: str, value: Any) -> Any:
    if name == "args" and isinstance(value, str):
        return _redacted_text_of_json(value)
    if name == "content" and isinstance(value, list):  # a prompt in pieces, or a list that a tool returned
        return [_redacted_part(one) if isinstance(one, dict) and "kind" in one else redacted_json(one) for one in value]
    return redacted_json(value)


def _redacted_text_of_json(text: str) -> str:
    try:
        clean = redacted_json(json.loads(text))
        return replaced if json.loads(replaced := redacted(text)) == clean else json.dumps(clean)
    except (ValueError, RecursionError):
        return redacted(text)


def redacted_parameters(parameters: ModelRequestParameters, tools: frozenset[str] | None) -> ModelRequestParameters:
    """Instructions and descriptions of tools without secrets; of the tools that a provider itself runs, those in `tools`."""
    return replace(
        parameters,
        function_tools=[_redacted_tool(tool) for tool in parameters.function_tools],
        output_tools=[_redacted_tool(tool) for tool in parameters.output_tools],
        instruction_parts=[replace(part, content=redacted(part.content)) for part in parameters.instruction_parts]
        if parameters.instruction_parts
        else parameters.instruction_parts,
        native_tools=[tool for tool in parameters.native_tools if tools is None or tool.kind in tools],
    )


def _redacted_tool(tool: ToolDefinition) -> ToolDefinition:
    description, schema = redacted(tool.description or ""), _redacted_schema(tool.parameters_json_schema)
    if (description, schema) == (tool.description or "", tool.parameters_json_schema):
        return tool
    return replace(tool, description=description, parameters_json_schema=schema)


def _redacted_schema(value: Any) -> Any:
    """The schema without secrets in its texts for the model. Names of keywords and parameters come from code and
    stay.
    """
    if isinstance(value, dict):
        return {
            name: redacted_json(inner) if name in SAID and not isinstance(inner, dict) else _redacted_schema(inner)
            for name, inner in value.items()
        }
    return [_redacted_schema(inner) for inner in value] if isinstance(value, list) else value


def _keys(model: Model) -> Iterator[str]:
    if isinstance(model, FallbackModel):
        for one in model.models:
            yield from _keys(one)
    elif isinstance(model, WrapperModel):
        yield from _keys(model.wrapped)
    else:
        key = getattr(getattr(model, "client", None), "api_key", None)
        if isinstance(key, str):
            yield key
