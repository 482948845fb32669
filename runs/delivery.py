"""The task that sends an outbox message over a network which may be slow."""

import structlog
from celery import shared_task
from django.db import close_old_connections

from runs.outbox import BY_TASK, DELETE, postpone, read
from runs.sql import execute
from runs.wiring import wiring

log = structlog.get_logger(__name__)

FIND = "SELECT id, topic, payload FROM runs_outboxmessage WHERE id = %s::bigint"


@shared_task(name=BY_TASK)
def deliver(id: int) -> None:
    """Send one message; one that fails is tried again, at longest every ten minutes, until it is sent."""
    close_old_connections()
    for _, topic, payload in read(FIND, [id]):
        try:
            wiring.by_task[topic](payload)
        except Exception as error:
            postpone(id, topic, error)
        else:
            execute(DELETE, [id])
            log.info("outbox.sent", message=id, topic=topic)
