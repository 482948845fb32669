"""A heartbeat agent with four items. The world that it watches is the file that NIGHT_WORLD names, which a test writes."""

import json
import os
from pathlib import Path
from typing import Any

from agents import Fire, GateRun, Heartbeat, Quiet

BACKUP = "Is the newest backup older than a day?"


def world() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(os.environ["NIGHT_WORLD"]).read_text())
    return found


def newest_backup() -> str:
    """When the newest backup was made."""
    if not world()["backup"]:
        raise ConnectionError("the backup server does not answer")
    return str(world()["backup"])


def something_new(run: GateRun) -> Fire | Quiet:
    changes = world()["changes"]
    if changes != run.last:
        return Fire(f"{changes} changes", state=changes)
    if any(item.text == BACKUP for item in run.checklist.due()):
        return Fire("the backup is due")
    return Quiet("nothing is new")


Heartbeat(
    "nightwatch",
    every="30m",
    tools=[newest_backup],
    checklist={
        "[script night all] Are there tickets that wait?": None,
        "Has a deploy failed?": None,
        "Are there payments that were refused?": None,
        BACKUP: "2h",
    },
    gate=something_new,
)
