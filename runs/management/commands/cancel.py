from typing import Any
from uuid import UUID

from runs.actions.cancel import cancel
from runs.management.each_run import FoundRunsCommand
from runs.management.operator import operator
from runs.models import Run
from runs.states import LIVE


class Command(FoundRunsCommand):
    help = "Cancel unfinished runs, by id or by filter. Running ones stop within seconds."
    done = "cancelled"
    legal = meant = sorted(LIVE)

    def act_on(self, run_id: UUID, **options: Any) -> Run:
        return cancel(run_id, by=operator())
