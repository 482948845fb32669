from typing import Annotated, Literal

from pydantic import Field

from agents.tools.toolbox import refusals_told, tool
from agents.work_git import Repository


# What stands in a repository is written by others.
@tool(effect="read")
def git_look(
    repository: Annotated[str, Field(max_length=2000, description="its folder: absolute, or below the first root")],
    what: Literal["status", "log", "branches", "diff"],
    against: Annotated[str, Field(max_length=100, description="for diff: a branch or commit")] = "HEAD",
) -> str:
    """Look at a git repository below the roots: its status, the last 30 commits, its branches with their last commits, or what its files
    have that a commit has not."""
    with refusals_told():
        found = Repository(repository)
        if what == "diff":
            return found.diff(against)
        return {"status": found.status, "log": found.log, "branches": found.branches}[what]()
