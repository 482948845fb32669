from typing import Annotated

from pydantic import Field
from pydantic_ai import ApprovalRequired, RunContext

from agents.llm.tools import SHOWN
from agents.run import REPLY_LENGTH, AgentRun
from agents.tools.toolbox import refusals_told, run_of, tool


# It takes no address: the place is that of the message. Whether a person is to see what strangers may have asked for, the source says.
@tool(effect="transactional", trusted=True)
def reply(
    ctx: RunContext[AgentRun],
    text: Annotated[str, Field(min_length=1, max_length=REPLY_LENGTH, description="the whole answer")],
) -> str:
    """Answer the message that woke you, in its thread."""
    run = run_of(ctx)
    if run.is_tainted and run.reply_place.asks and not ctx.tool_call_approved:
        raise ApprovalRequired(metadata={SHOWN: f"It answers there: {run.reply_place.name}."})
    with refusals_told():
        run.reply(text)
    return "It is sent when this step is committed."
