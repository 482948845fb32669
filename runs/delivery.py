"""The task by which dispatchers of the version before have alarms sent. It stays for one version: during a deploy they run
beside this one."""

from celery import shared_task
from django.db import close_old_connections

from runs.db.sql import execute
from runs.outbox import DELETE, postpone, read
from runs.wiring import wiring

FIND = "SELECT id, topic, payload FROM runs_outboxmessage WHERE id = %(id)s::bigint"


@shared_task(name="runs.deliver")
def deliver(id: int) -> None:
    """Send one message; one that fails is tried again, at longest every ten minutes, until it is sent."""
    close_old_connections()
    for _, topic, payload in read(FIND, {"id": id}):
        try:
            wiring.slow[topic](payload)
        except Exception as error:
            postpone(id, topic, error)
        else:
            execute(DELETE, [id])
