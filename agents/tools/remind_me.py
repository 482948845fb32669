from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field
from pydantic_ai import RunContext

from agents.kernel.instants import instant_with_offset
from agents.reminders import remind
from agents.run import AgentRun
from agents.tools.toolbox import refusals_told, run_of, tool


@tool(effect="transactional", trusted=True)
def remind_me(
    ctx: RunContext[AgentRun],
    at: Annotated[str, Field(max_length=40, description="with an offset, such as 2026-12-01T09:00+01:00")],
    text: Annotated[str, Field(min_length=1, max_length=2000)],
) -> str:
    """Wake up once, at an instant, with a text to remember."""
    with refusals_told():
        instant = instant_with_offset(at)
        ahead = instant - datetime.now(UTC)
        if ahead.total_seconds() <= 0:
            raise ValueError(f"{at} is over; it is {datetime.now(UTC):%Y-%m-%dT%H:%M}+00:00")
        remind(run_of(ctx), ahead, text)
    return f"You will be reminded at {instant.isoformat()}."
