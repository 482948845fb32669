from typing import Annotated

from pydantic import Field
from pydantic_ai import RunContext

from agents.run import AgentRun
from agents.tools.toolbox import refusals_told, run_of, tool

FASTEST = "15m"  # a model may schedule itself more often than this only if its author allows it


# The schedule belongs to the run's own trigger: its runs have no other tools, budgets and rates than this one. Dangerous: it
# goes on when the data that requested it is long gone.
@tool(effect="transactional", dangerous=True, trusted=True)
def schedule(
    ctx: RunContext[AgentRun],
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$", description="the same name changes the schedule")],
    cron: Annotated[str, Field(max_length=100, description='five fields, such as "0 9 * * mon-fri"')] = "",
    every: Annotated[str, Field(max_length=40, description='instead of cron, an interval such as "2h"')] = "",
    tz: Annotated[str, Field(max_length=60, description="zone of cron, such as Europe/Vienna")] = "UTC",
) -> str:
    """Wake up again and again, by a schedule of your own. Without cron and every, the schedule of that name is deleted."""
    with refusals_told():
        run_of(ctx).schedule(name, cron=cron, tz=tz, every=every or None, spacing=FASTEST)
    return f"The schedule {name} is {'set' if cron or every else 'deleted'}."
