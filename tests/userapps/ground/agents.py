"""Agents that wake on what changes by itself; what each has seen is the result of its run."""

import json
import os
from pathlib import Path
from typing import Any

from agents import AgentRun, agent, on
from agents.files import FileChanged, open_file
from tests.support.moving_files import is_whole

DIRECTORY = os.environ.get("GROUND_FILES", "/nowhere")
STATE = Path(os.environ.get("GROUND_STATE", "/nowhere"))


@agent("rows", triggers=[on.model_change("auth.Group", operations=["insert", "update"])])
def rows(run: AgentRun) -> Any:
    """Sees the old and the new row."""
    return run.event.data


@agent("items", triggers=[on.event("db.public.items.*", source="shop")])
def items(run: AgentRun) -> Any:
    """Sees the old and the new row of another database."""
    return {"type": run.event.type, **run.event.data}


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


def wanted_servers() -> dict[str, int]:
    return dict.fromkeys("abcd", 1)


def found_servers() -> Any:
    return json.loads(STATE.read_text())


@agent(
    "episodes",
    triggers=[
        on.drift(
            wanted_servers, found_servers, every="10s", transitions=("opened", "worsened", "closed"), slug="drift"
        ),
        on.event("metric.*", slug="numbers"),
    ],
)
def episodes(run: AgentRun) -> dict[str, Any]:
    """Sees each transition of an episode."""
    return {"type": run.event.type, "source": run.event.source, "value": run.event.data["value"]}


@agent(
    "absences",
    triggers=[on.absence("thing.seen", within="15s", of="thing.begun", key="event.data.key", closed=True)],
)
def absences(run: AgentRun) -> dict[str, Any]:
    """Gets each opening and closing of a switch."""
    return {"type": run.event.type, "key": run.event.data["key"]}
