from typing import Annotated

from pydantic import Field
from pydantic_ai import RunContext

from agents.mail_accounts import CONNECTION, LONGEST, draft_answer
from agents.run import AgentRun
from agents.tools.toolbox import refusals_told, run_of, tool


# Dangerous: people take what stands in their drafts for their own words. It takes no recipient: a stranger's text may name one.
@tool(effect="at_most_once", dangerous=True, trusted=True, connection=CONNECTION)
def draft_mail(
    ctx: RunContext[AgentRun],
    text: Annotated[str, Field(min_length=1, max_length=LONGEST, description="the whole answer, as plain text")],
) -> str:
    """Save an answer to the message that this is about as a draft, in its thread. It is not sent: a person reads it, and sends it."""
    with refusals_told():
        draft_answer(run_of(ctx), text)
    return "The draft is saved. A person may send it."
