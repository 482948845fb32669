"""Facts about this installation, for agents (`agents.kernel.installation`)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.urls import reverse

from agents.kernel.ids import first_id_at
from agents.kernel.installation import Backlog, FailedRuns, Finished, OpenApproval, Trouble
from runs.db.sql import fetch, fetch_as
from runs.incidents.cause import cause_of
from runs.models import UNPARSED, Approval, Wait
from runs.network.site import site
from runs.queues.pause import EVERY
from runs.queues.state import all_queues

SEEN = 1_000  # newest failed runs that are grouped
NAMED = 5  # runs of a group
LATELY_FAILED = """
SELECT id, agent, left(error, 500) AS error, finished_at FROM (
  SELECT id, agent, error, finished_at FROM runs_run WHERE status = 'failed' ORDER BY id DESC LIMIT %s::int
) newest
WHERE finished_at > (SELECT clock_timestamp()) - %s::interval ORDER BY id DESC
"""
COUNTED = 50_000
FINISHED = """
SELECT agent, count(*) AS runs, count(*) FILTER (WHERE status = 'failed') AS failed FROM (
  SELECT agent, status FROM runs_run
  WHERE id >= %s::uuid AND id < %s::uuid AND status IN ('succeeded', 'failed') ORDER BY id LIMIT %s::int
) run
GROUP BY agent ORDER BY agent
"""


def failed_runs(within: timedelta, most: int = 20) -> list[FailedRuns]:
    groups: dict[tuple[str, str], list[tuple[UUID, str, datetime]]] = {}
    for id, agent, error, finished_at in fetch(LATELY_FAILED, [SEEN, within]):
        groups.setdefault((agent, cause_of(error)), []).append((id, error, finished_at))
    found = [_failed(agent, cause, runs) for (agent, cause), runs in groups.items()]
    return sorted(found, key=lambda group: -group.count)[:most]


def _failed(agent: str, cause: str, runs: Sequence[tuple[UUID, str, datetime]]) -> FailedRuns:
    times = [finished_at for _, _, finished_at in runs]
    return FailedRuns(
        agent=agent,
        cause=cause,
        error=runs[0][1],
        count=len(runs),
        first_at=min(times),
        last_at=max(times),
        runs=[id for id, _, _ in runs[:NAMED]],
    )


def backlog() -> list[Backlog]:
    queues = all_queues()
    is_all_paused = any(queue.is_paused for queue in queues if queue.name == EVERY)
    return [
        Backlog(
            queue=queue.name,
            waiting=queue.ready,
            oldest=timedelta(seconds=queue.oldest_seconds),
            running=queue.running,
            children=queue.children,
            is_paused=is_all_paused or queue.is_paused,
        )
        for queue in queues
        if queue.name != EVERY
    ]


def open_approvals(most: int = 100) -> list[OpenApproval]:
    found = Approval.objects.filter(wait__status=Wait.Status.OPEN, wait__kind=Wait.Kind.APPROVAL, decision="")
    found = found.select_related("wait__run").defer(*(f"wait__run__{name}" for name in UNPARSED))
    return [
        OpenApproval(
            id=approval.pk,
            agent=approval.wait.run.agent,
            question=approval.question[:500],
            asked_at=approval.wait.created_at,
            until=approval.wait.due_at,
            page=site() + reverse("admin:runs_approval_change", args=[approval.pk]),
        )
        for approval in found.order_by("wait_id")[:most]
    ]


def troubles(most: int = 50) -> list[Trouble]:
    # Imported here, because every process connects the facts: a worker loads the signs only for an agent that reads
    # troubles.
    from config.health.problems import problems
    from config.health.situation import read_situation
    from runs.sign import BAD

    return [
        Trouble(name=problem.name, text=problem.text, remedy=problem.remedy, is_bad=problem.severity == BAD)
        for problem in problems(read_situation())[:most]
    ]


def finished(since: datetime, until: datetime) -> list[Finished]:
    return fetch_as(Finished, FINISHED, [first_id_at(since), first_id_at(until), COUNTED])
