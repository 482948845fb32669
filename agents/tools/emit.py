from typing import Annotated, Any

from pydantic import Field
from pydantic_ai import RunContext

from agents.run import AgentRun
from agents.tools.toolbox import refusals_told, run_of, tool


# Dangerous: agents of plain code act on an event without a look at its taint.
@tool(effect="transactional", dangerous=True, trusted=True)
def emit(
    ctx: RunContext[AgentRun],
    type: Annotated[str, Field(max_length=200, description='such as "invoice.checked"')],
    data: dict[str, Any] | None = None,
    subject: Annotated[str, Field(max_length=200, description="what it is about, such as a number")] = "",
) -> str:
    """Emit an event: agents that wait for events of this type wake on it."""
    with refusals_told():
        run_of(ctx).emit(type, data, subject=subject)
    return f"The event {type} is emitted."
