from typing import Any
from uuid import UUID

from runs.actions.requeue import requeue
from runs.management.each_run import FoundRunsCommand
from runs.management.operator import operator
from runs.models import Run
from runs.states import REQUEUEABLE, RunStatus


class Command(FoundRunsCommand):
    help = "Queue failed or cancelled runs again, by id or by filter."
    done = "requeued"
    legal = sorted(REQUEUEABLE)
    meant = (RunStatus.FAILED,)

    def act_on(self, run_id: UUID, **options: Any) -> Run:
        return requeue(run_id, by=operator())
