"""The Celery tasks. `doorbell` claims and executes runs for about one second, then rings again if work remains."""

import time
from collections.abc import Mapping
from uuid import UUID

import structlog
from celery import Task, shared_task
from django.db import close_old_connections, connection

from agents import registry
from agents.prompt_agents import catalog
from runs.attempt.ownership import with_patience
from runs.claim import Along, Claim, Nothing, claim_along, claim_next, look, release_unbegun
from runs.db import nudge
from runs.db.outage import CONNECTION_ERRORS
from runs.executor import execute
from runs.failpoints import failpoint
from runs.queues import doorbell as relay
from runs.worker import parent, stay

log = structlog.get_logger(__name__)

SLICE = 1.0  # seconds


class Doorbell(Task):  # type: ignore[type-arg]  # its class takes none
    Request = "runs.worker.doorbell_request:DoorbellRequest"


@shared_task(name=relay.DOORBELL, base=Doorbell)
def doorbell(queue: str, format: int = relay.FORMAT, *newer: object, **newest: object) -> None:
    """Claim the best ready run, execute it, claim the next, until none is left or the slice is over. Then stay for a moment, if no other
    work has to wait for this child, and go on with the next run.

    It ignores further arguments of a newer version: PostgreSQL decides what there is to do."""
    ends = time.monotonic() + stay.seconds_of_task()
    close_old_connections()
    agents = known_agents()
    claim = next_claim(parent.WORKER_ID, queue, agents)
    while claim and not execute_until_none_is_left(claim, queue, agents) and time.monotonic() < ends:
        nudge.flush()
        agents = known_agents()
        claim = claim_when_woken(queue, agents)
    nudge.flush()


def known_agents() -> dict[str, str]:
    with_patience(catalog.refresh)
    return {agent.name: agent.version for agent in registry.all_agents()}


def execute_until_none_is_left(claim: Claim | None, queue: str, agents: Mapping[str, str]) -> bool:
    """True: this child has rung for what is left, so that other queues get their turn."""
    worker_id = parent.WORKER_ID
    slice_ends = time.monotonic() + SLICE
    along: Along | None = None

    def another() -> Along | None:
        nonlocal along
        along = claim_along(worker_id, queue, agents) if time.monotonic() < slice_ends else None
        return along

    while claim:
        along = None
        claimed = execute(claim, another)
        close_old_connections()
        if along is not None and along.is_last:
            break  # a run that becomes ready from now on is rung for
        if claimed is None and time.monotonic() >= slice_ends:
            if hand_over(queue):
                return True
            slice_ends = time.monotonic() + SLICE  # in addition to the seconds that a failing broker took
        claim = claimed or next_claim(worker_id, queue, agents)
    return False


def claim_when_woken(queue: str, agents: Mapping[str, str]) -> Claim | None:
    """Stay for the next run. Where this child is woken for a run that it cannot claim, it rings for the worker that can."""
    found = stay.next_run(parent.WORKER_ID, queue, agents)
    if not isinstance(found, Nothing):
        return found
    claim = next_claim(parent.WORKER_ID, queue, agents)
    if claim is None:
        hand_over(queue)
    return claim


def next_claim(worker_id: UUID, queue: str, agents: Mapping[str, str]) -> Claim | None:
    """Claim a run, reconnecting while the database is away. Where the answer of a claim was lost, now or before, release unbegun
    claims first: no other process would notice that before its deadline."""
    try:
        found = look(worker_id, queue, agents)
        if isinstance(found, Claim):
            return found
        if not found.is_unbegun:
            return None
    except CONNECTION_ERRORS:
        connection.close()

    def release_and_claim() -> Claim | None:
        release_unbegun(worker_id)
        return claim_next(worker_id, queue, agents)

    return with_patience(release_and_claim)


def hand_over(queue: str) -> bool:
    """Ring again, so that other queues of this child get their turn. False: ringing failed, so go on claiming."""
    failpoint("before_hand_over")
    wanted = [line for line in relay.read_wanted(queue) if line.claimable]
    return not wanted or relay.publish(wanted, most=1)
