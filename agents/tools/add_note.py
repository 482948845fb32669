from typing import Annotated

from pydantic import Field
from pydantic_ai import RunContext

from agents.run import AgentRun
from agents.tools.toolbox import refusals_told, run_of, tool
from agents.work_notes import LENGTH, append_note


# The day is that of the run's event: a repetition after midnight finds the note that is there.
@tool(effect="idempotent", trusted=True)
def add_note(
    ctx: RunContext[AgentRun],
    text: Annotated[str, Field(min_length=1, max_length=LENGTH, description="for people, who read it later")],
) -> str:
    """Append a line or some to the note of the day, which people read."""
    run = run_of(ctx)
    with refusals_told():
        path = append_note(text, at=run.event.time, by=run.agent, key=run.idempotency_key)
    return f"It stands in {path}."
