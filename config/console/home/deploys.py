"""Deploys: the first start of a worker with a version that no worker had before."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from runs.db.sql import fetch

SHOWN = 20
LENGTH = 12  # characters of a version in the chart
NEAR = timedelta(hours=6)  # a deploy that may be the cause of what began later
# There are as many rows as processes have started since retention deleted the last.
VERSIONS = """
SELECT version, min(started_at) FROM runs_worker WHERE kind = 'worker' AND version <> ''
GROUP BY version ORDER BY min(started_at) DESC LIMIT %s::int
"""


@dataclass(frozen=True)
class Deploy:
    version: str
    at: datetime

    @property
    def short(self) -> str:
        return self.version if len(self.version) <= LENGTH else f"{self.version[: LENGTH - 1]}…"


def deploys() -> list[Deploy]:
    """The newest first. The first version that is known replaced no other."""
    found = [Deploy(*row) for row in fetch(VERSIONS, [SHOWN])]
    return found if len(found) == SHOWN else found[:-1]


def deploy_before(found: Sequence[Deploy], at: datetime) -> Deploy | None:
    return next((one for one in found if timedelta() <= at - one.at < NEAR), None)
