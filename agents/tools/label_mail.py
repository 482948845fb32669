from typing import Annotated

from pydantic import Field
from pydantic_ai import RunContext

from agents.mail_accounts import CONNECTION, label_message
from agents.run import AgentRun
from agents.tools.toolbox import refusals_told, run_of, tool

Label = Annotated[str, Field(min_length=1, max_length=40, description="such as Invoice")]


# Not dangerous: the labels are Wakeful's own, and nothing is moved, hidden or removed.
@tool(effect="idempotent", trusted=True, connection=CONNECTION)
def label_mail(ctx: RunContext[AgentRun], labels: Annotated[list[Label], Field(min_length=1, max_length=5)]) -> str:
    """Add labels to the message that this is about, in the mailbox of the person. They stand below Wakeful/."""
    with refusals_told():
        label_message(run_of(ctx), labels)
    return "It is labelled."
