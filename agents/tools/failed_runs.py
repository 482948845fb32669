from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field

from agents.kernel.installation import facts
from agents.tools.toolbox import tool


# The texts of errors repeat what strangers have sent.
@tool(effect="read")
def failed_runs(hours: Annotated[int, Field(ge=1, le=24 * 31)] = 24) -> list[dict[str, Any]]:
    """The runs that failed in the last hours and are still failed, by cause, the most frequent first: agent, error, count, the
    first and the last time, and the ids of some."""
    return [asdict(cause) for cause in facts.failed_runs(timedelta(hours=hours))]
