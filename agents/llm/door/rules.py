"""The rules of the door for one call of run.llm: which tools it may use, and which of their calls need approval."""

from dataclasses import dataclass
from typing import Any

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.messages import ModelResponse, NativeToolCallPart, NativeToolReturnPart
from pydantic_ai.models import ModelRequestParameters

from agents.exceptions import Permanent
from agents.llm.context import LlmContext
from agents.llm.door.approvals import Approver
from agents.llm.door.danger import danger_of
from agents.llm.door.shown_arguments import as_json
from agents.llm.door.tool_steps import ToolSteps
from agents.llm.door.trusted_texts import TrustedTexts
from agents.llm.opening import Opened
from agents.llm.tools import OF_THE_FRAMEWORK, ToolPolicy

# Native tools whose results are the model's own. All others read untrusted data.
OF_THE_MODEL = {"image_generation", "tool_search", "advisor"}


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A call at the door, of a tool or of an output function; `id` is that of the model's answer."""

    name: str
    id: str
    policy: ToolPolicy
    tool: ToolDefinition | None = None
    always_asks: bool = False


class Rules:
    def __init__(self, context: LlmContext, opened: Opened, steps: ToolSteps, approver: Approver) -> None:
        self._tools = opened.tools
        self._texts = TrustedTexts(opened.words)
        self._is_tainted = context.is_tainted
        self._taint = context.taint
        self._steps = steps
        self._approver = approver

    def allows(self, tool: ToolDefinition) -> bool:
        return self._tools is None or tool.name in self._tools or tool.tool_kind in OF_THE_FRAMEWORK

    def require_allowed_tool(self, tool: ToolDefinition) -> None:
        """Raises Permanent if the tool cap excludes the tool."""
        if not self.allows(tool):
            self.require_allowed("tool", tool.name)

    def require_allowed(self, what: str, name: str) -> None:
        """Raises Permanent if the tool cap excludes this name."""
        if self._tools is not None and name not in self._tools:
            allowed = ", ".join(sorted(self._tools)) or "none"
            raise Permanent(f"{what} {name!r} is outside of the tool cap of this run, which allows: {allowed}")

    def why(self, call: ToolCall, arguments: dict[str, Any], ctx: RunContext[Any]) -> str | None:
        """Why this call needs approval; None: it needs none. A call that a person decided about stays bound to that
        decision; a recorded call without a question needed none.
        """
        if self._approver.was_asked(call.name, call.id):
            return ""
        if self._steps.has(call.name, call.id):
            return None
        danger = ""
        if self._is_tainted():
            danger = danger_of(call.policy, as_json(arguments), lambda: self._texts.of(ctx, call.tool))
        return danger or ("" if call.always_asks else None)

    def judge_result(self, call: ToolCall) -> None:
        """The result of a trusted tool is a trusted text; any other one taints the run."""
        if call.policy.trusted:
            self._texts.trust(call.name, call.id)
        else:
            self._taint()

    def judge_answer(self, parameters: ModelRequestParameters, response: ModelResponse) -> None:
        """Taint the run if a provider's own tool may have read untrusted data: not every answer shows that one was
        used.
        """
        self._texts.note_instructions(parameters)
        offered = {tool.kind for tool in parameters.native_tools}
        used = any(
            isinstance(part, NativeToolCallPart | NativeToolReturnPart) and part.tool_name not in OF_THE_MODEL
            for part in response.parts
        )
        if self._tools is not None:
            offered &= self._tools
        if used or offered - OF_THE_MODEL:
            self._taint()
