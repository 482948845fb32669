"""What one obstacle may keep from going on: nothing but itself."""

import time
from uuid import uuid4

import psycopg
import pytest
from celery import current_app
from django.db import connection
from django.db.models.functions import Now
from kombu.pools import ProducerPool

from runs import relay
from runs.listen import set_timeouts
from runs.models import Run, Worker
from runs.rescue import Rescuer
from tests.runs.factories import make_run


@pytest.mark.django_db(transaction=True, serialized_rollback=True)
def test_a_lock_on_one_lost_run_does_not_keep_the_others_from_being_rescued() -> None:
    worker = Worker.objects.create(
        id=uuid4(), kind="worker", host="h", pid=1, version="1", concurrency=3, stopped_at=Now()
    )
    locked, *others = (make_run(ready_at=None) for _ in range(3))
    for pid, run in enumerate((locked, *others)):
        owned = {"worker": worker, "pid": pid, "claimed_at": Now(), "deadline_at": Now(), "attempt": 1, "epoch": 1}
        Run.objects.filter(pk=run.pk).update(status="running", **owned)

    wanted = ("host", "port", "user", "password", "dbname")
    parameters = {name: value for name, value in connection.get_connection_params().items() if name in wanted}
    with psycopg.connect(**parameters) as holder:
        holder.execute("SELECT FROM runs_run WHERE id = %s FOR UPDATE", [locked.id])
        set_timeouts()
        assert Rescuer().rescue() == 2
        holder.rollback()

    assert [Run.objects.get(pk=run.pk).status for run in (locked, *others)] == ["running", "queued", "queued"]
    assert Rescuer().rescue() == 1
    connection.close()  # its timeouts are no other test's


def test_a_broker_that_is_away_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """kombu, left to itself, tries for 6 s: dispatch, rescue and every claim would wait for it."""
    connections = current_app.connection_for_write("redis://127.0.0.1:1/0").Pool(1)
    monkeypatch.setattr(current_app.amqp, "_producer_pool", ProducerPool(connections, limit=1))

    started = time.monotonic()
    assert not relay.publish([relay.Wanted(queue="default", bound=2, claimable=1)])
    assert time.monotonic() - started < 2
