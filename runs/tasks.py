"""Celery's door: a doorbell makes a child claim and execute runs for about a second, then ring again if there is more."""

import time

import structlog
from celery import shared_task
from django.db import close_old_connections

from agents import registry
from runs import parent, relay
from runs.claim import claim_next, settle
from runs.executor import execute

log = structlog.get_logger(__name__)

SLICE = 1.0  # seconds


@shared_task(name=relay.DOORBELL)
def doorbell(queue: str, format: int = relay.FORMAT) -> None:
    """Claim the best ready run, execute it, claim the next, until none is left or the slice is over."""
    worker_id = parent.WORKER_ID
    agents = [agent.name for agent in registry.all_agents()]
    close_old_connections()
    settle(worker_id)
    slice_ends = time.monotonic() + SLICE
    while claim := claim_next(worker_id, queue, agents):
        execute(claim)
        close_old_connections()
        if time.monotonic() >= slice_ends and hand_over(queue):
            return


def hand_over(queue: str) -> bool:
    """Ring again, so that other queues of this child get their turn; False if ringing failed, so go on claiming."""
    wanted = [line for line in relay.look(queue) if line.claimable]
    return not wanted or relay.publish(wanted)
