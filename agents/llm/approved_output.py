"""The last look at an output before its function is called with it, behind all hooks: it is the one that a person has approved."""

from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.capabilities.abstract import CapabilityOrdering
from pydantic_ai.output import OutputContext

from agents.llm.approvals import Approver

OUTPUT = "output"  # the call of an output that no tool call gives


class ApprovedOutput(AbstractCapability[Any]):
    def __init__(self, approver: Approver) -> None:
        self._approver = approver

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="innermost")

    async def before_output_process(self, ctx: RunContext[Any], *, output_context: OutputContext, output: Any) -> Any:
        if output_context.has_function and not ctx.partial_output:
            called = output_context.tool_call
            self._approver.require_approved_output(called.tool_call_id if called else OUTPUT, output)
        return output
