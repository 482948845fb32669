"""What the database refuses for a reason of its own, such as a schema that is not migrated yet, costs no notification anything."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import Error, connection
from django.test.utils import CaptureQueriesContext

from runs.db.sql import execute
from runs.models import Delivery, Notification
from runs.notifications.deliver import Deliverer
from runs.notifications.plan import plan
from tests.runs.notifications.test_poisoned import accept, refuse, statuses_of
from tests.support.notifying import delivered, make_due, make_recipient, notify

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def without(table: str, column: str) -> Iterator[None]:
    """A column that this version reads is missing."""
    execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO not_yet")
    try:
        yield
    finally:
        execute(f"ALTER TABLE {table} RENAME COLUMN not_yet TO {column}")


@pytest.mark.parametrize(("table", "column"), [("runs_recipient", "silenced_until"), ("runs_notification", "sender")])
def test_a_half_upgraded_schema_costs_no_notification_anything(table: str, column: str) -> None:
    make_recipient("ada")
    for number in range(20):
        notify(f"number {number}")
    plan()
    deliverer = Deliverer()
    deliverer.has_synced = True

    with without(table, column):
        for _ in range(3):
            with CaptureQueriesContext(connection) as queries, pytest.raises(Error, match=column):
                deliverer.deliver_some()
            assert len(queries) < 40

    deliverer.deliver_some()
    open_ = Delivery.objects.filter(attempts__lte=1, error="", reason="")  # those of this look are under way
    assert open_.count() == 20
    assert open_.filter(status="pending", attempts=0).count() >= 3
    make_due()
    delivered(deliverer)
    assert set(Delivery.objects.values_list("attempts", flat=True)) == {1}
    assert set(Delivery.objects.values_list("status", flat=True)) == {"sent"}


def test_more_refused_notifications_than_are_planned_at_once_stop_no_other() -> None:
    refuse("cy")
    make_recipient("cy", gets_all=False)
    make_recipient("ada", gets_all=False)
    for _ in range(5):
        notify("to cy", to=["cy"])
    hers = notify("to ada", to=["ada"])

    plan(2)

    assert statuses_of(hers) == {"ada": "pending"}
    notify("later", to=["ada"])
    plan(2)
    assert not Notification.objects.filter(planned_at=None).exists()
    assert Delivery.objects.filter(name="cy", status="failed").count() == 5
    accept()
