from typing import Annotated

from pydantic import Field
from pydantic_ai import ModelRetry, RunContext

from agents.exceptions import StateConflict
from agents.memory import KEY_LENGTH, TEXT_LENGTH
from agents.run import AgentRun
from agents.tools.toolbox import refusals_told, run_of, tool


@tool(effect="transactional", trusted=True)
def remember(
    ctx: RunContext[AgentRun],
    key: Annotated[str, Field(min_length=1, max_length=KEY_LENGTH, description="short, such as customer:4711")],
    text: Annotated[str, Field(min_length=1, max_length=TEXT_LENGTH)],
    revision: Annotated[
        int, Field(ge=0, description="of the note that it replaces, as recall gave it; 0: it is new")
    ] = 0,
) -> str:
    """Keep a note for your later runs: a fact, a decision, a preference. The note of this key is replaced, so write all of it."""
    with refusals_told():
        try:
            written = run_of(ctx).memory.put(key, text, revision=revision)
        except StateConflict as conflict:
            raise ModelRetry(f"{conflict}. Recall it, and give the revision that you replace") from conflict
    return f"Kept as revision {written}."
