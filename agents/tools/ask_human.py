from typing import Annotated

from pydantic import Field
from pydantic_ai import CallDeferred

from agents.tools.toolbox import tool


@tool(effect="read", trusted=True)
def ask_human(
    question: Annotated[str, Field(min_length=1, max_length=2000, description="with all that they need to answer it")],
) -> str:
    """Ask a person a question, and wait for the answer, for up to a day. Ask only what you cannot find out yourself."""
    raise CallDeferred(kind="question")  # answered in agents.llm.door.approvals, where a run can wait
