"""Agents that wake on what changes by itself; what each has seen is the result of its run."""

import os
from typing import Any

from agents import AgentRun, agent, on
from agents.files import FileChanged, open_file
from tests.support.moving_files import is_whole

DIRECTORY = os.environ.get("GROUND_FILES", "/nowhere")


@agent("rows", triggers=[on.model_change("auth.Group", operations=["insert", "update"])])
def rows(run: AgentRun) -> Any:
    """Sees the old and the new row."""
    return run.event.data


@agent(
    "files",
    triggers=[
        on.file(DIRECTORY, "*.csv", changes=["created", "changed", "renamed", "vanished"], settle="2s", every="1s")
    ],
)
def files(run: AgentRun) -> dict[str, Any]:
    """Reads the file, which must be whole."""
    if run.event.type == "file.vanished":
        return {"gone": True}
    try:
        with open_file(run.event) as file:
            content = file.read()
    except FileChanged:
        return {"changed": True}
    if not is_whole(content):
        raise ValueError("half a file")
    return {"size": len(content)}
