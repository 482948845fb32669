"""What will wake next, without the housekeeping of Wakeful itself."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.http import HttpRequest

from config.console.operations.upcoming import allowed_kinds
from triggers.upcoming.entry import Coming
from triggers.upcoming.listing import ahead

READ = 60  # entries of each kind
SHOWN = 6
OURS = "wakeful."  # the beginning of the names of Wakeful's own periodic tasks


def coming_up(request: HttpRequest, now: datetime) -> list[Coming]:
    found = ahead(now, now + timedelta(days=7), READ, kinds=allowed_kinds(request))
    return [one for one in found if not (one.kind == "task" and one.name.startswith(OURS))]


def next_wakes(found: Sequence[Coming]) -> dict[str, datetime]:
    """The next wake of each agent that has one."""
    wakes: dict[str, datetime] = {}
    for one in found:
        if one.agent:
            wakes.setdefault(one.agent, one.at)
    return wakes
