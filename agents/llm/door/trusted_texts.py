"""The texts of a call that no stranger wrote: the prompt and instructions, descriptions of tools that are not from MCP servers, and
results of trusted tools. An address that stands in one of them is not dangerous."""

from collections.abc import Iterator
from typing import Any

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.messages import BaseToolReturnPart, ModelRequest, SystemPromptPart, ToolsetInstructionSource
from pydantic_ai.models import ModelRequestParameters

from agents.llm.opening import Words
from agents.llm.strangers.addresses import without
from agents.llm.tools import HOSTS, ToolPolicy, of_mcp


class TrustedTexts:
    def __init__(self, words: Words) -> None:
        self._prompt = words.own
        self._not_of_the_author = list(words.from_strangers)  # untrusted texts that instructions may contain
        self._trusted_calls: set[tuple[str, str]] = set()  # ids within this call of run.llm: some models reuse an id

    def trust(self, tool: str, call: str) -> None:
        """Count the result of this call as a trusted text."""
        self._trusted_calls.add((tool, call))

    def note_instructions(self, parameters: ModelRequestParameters) -> None:
        """Note the instructions of toolsets: an MCP server may have written them."""
        for part in parameters.instruction_parts or ():
            is_toolsets = part.id is not None and isinstance(part.id.source, ToolsetInstructionSource)
            if is_toolsets and part.content not in self._not_of_the_author:
                self._not_of_the_author.append(part.content)

    def of(self, ctx: RunContext[Any], tool: ToolDefinition | None) -> Iterator[str]:
        """The trusted texts of this moment, with the description and the hosts of this tool."""
        yield self._prompt
        if tool:
            if not of_mcp(tool.metadata) or ToolPolicy.of_tool(tool).trusted:
                yield tool.description or ""
            hosts = (tool.metadata or {}).get(HOSTS, ())
            yield from hosts() if callable(hosts) else hosts
        for message in ctx.messages:
            if isinstance(message, ModelRequest):
                yield from self._of_request(message)

    def _of_request(self, request: ModelRequest) -> Iterator[str]:
        yield without(request.instructions or "", self._not_of_the_author)
        for part in request.parts:
            if isinstance(part, SystemPromptPart):
                yield without(part.content, self._not_of_the_author)
            elif isinstance(part, BaseToolReturnPart) and (part.tool_name, part.tool_call_id) in self._trusted_calls:
                yield part.model_response_str()
