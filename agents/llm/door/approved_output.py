"""The last check of an output, after all hooks and before its function is called: it must be the output that a person
approved.
"""

from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.capabilities.abstract import CapabilityOrdering
from pydantic_ai.output import OutputContext

from agents.llm.door.approvals import Approver

OUTPUT = "output"  # the key of an output that comes without a tool call


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
