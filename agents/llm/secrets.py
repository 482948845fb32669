"""Take the secrets that this process knows out of requests to models."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import ToolDefinition

from agents.redaction import know, redacted, redacted_json, refresh


def learn(model: Model) -> None:
    """Before a call of run.llm, in the main thread: the keys that the model's clients were given, and the secrets of sources."""
    know(*_keys(model))
    refresh()


def redacted_messages(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    told = ModelMessagesTypeAdapter.dump_json(list(messages)).decode()
    clean = redacted(told)
    return list(messages) if clean == told else ModelMessagesTypeAdapter.validate_json(clean)


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
    description, schema = redacted(tool.description or ""), redacted_json(tool.parameters_json_schema)
    if (description, schema) == (tool.description or "", tool.parameters_json_schema):
        return tool
    return replace(tool, description=description, parameters_json_schema=schema)


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
