from typing import Annotated

from pydantic import Field
from pydantic_ai import RunContext

from agents.run import AgentRun
from agents.tools.toolbox import refusals_told, run_of, tool
from agents.work_git import Repository

Path = Annotated[str, Field(min_length=1, max_length=1000)]


# Dangerous: people and their builds take what stands on a branch for work of the house.
@tool(effect="idempotent", dangerous=True, trusted=True)
def git_commit(
    ctx: RunContext[AgentRun],
    repository: Annotated[str, Field(max_length=2000, description="its folder: absolute, or below the first root")],
    branch: Annotated[str, Field(max_length=100, description="a new one, such as wakeful/tidy-docs")],
    message: Annotated[str, Field(min_length=1, max_length=4000)],
    paths: Annotated[
        list[Path], Field(min_length=1, max_length=100, description="files or folders, from the repository on")
    ],
) -> str:
    """Commit files of a git repository, as they are now, to a new branch. What is checked out stays, and nothing is pushed: a person looks
    at the branch."""
    run = run_of(ctx)
    with refusals_told():
        made = Repository(repository).commit(branch, message, paths, at=run.event.time, key=run.idempotency_key)
    return f"Committed as {made[:12]} on branch {branch}."
