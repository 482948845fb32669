from datetime import timedelta
from typing import Annotated

from pydantic import Field
from pydantic_ai import RunContext

from agents.reminders import remind
from agents.run import AgentRun
from agents.tools.toolbox import refusals_told, run_of, tool


@tool(effect="transactional", trusted=True)
def wake_me(
    ctx: RunContext[AgentRun],
    minutes: Annotated[int, Field(ge=1, le=366 * 1440)],
    reason: Annotated[str, Field(min_length=1, max_length=500, description="what to look at then")],
) -> str:
    """Wake up again once, in so many minutes, with this reason. Use it to look again at something that is not done yet."""
    with refusals_told():
        remind(run_of(ctx), timedelta(minutes=minutes), reason)
    return f"You will be woken in {minutes} minutes."
