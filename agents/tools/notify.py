from typing import Annotated

from pydantic import Field
from pydantic_ai import RunContext

from agents.kernel.effects import Urgency
from agents.run import AgentRun
from agents.tools.toolbox import refusals_told, run_of, tool


# It takes no link, since a stranger's data may ask for one: people are led to the page of the run, which shows its taint.
@tool(effect="transactional", trusted=True)
def notify(
    ctx: RunContext[AgentRun],
    text: Annotated[str, Field(min_length=1, max_length=4000, description="the whole message")],
    urgency: Annotated[Urgency, Field(description="high: also at night")] = "normal",
    topic: Annotated[
        str, Field(max_length=200, description="what it is about: the same text about it is sent once a day")
    ] = "",
    to: Annotated[
        list[str], Field(max_length=20, description="names of recipients or groups; empty: those who get everything")
    ] = [],  # noqa: B006  (never changed; the schema needs a value)
) -> str:
    """Tell people something. They get it by mail, chat or their inbox, as their own rules say."""
    with refusals_told():
        run_of(ctx).notify(text, urgency=urgency, topic=topic, to=to)
    return "They are notified."
