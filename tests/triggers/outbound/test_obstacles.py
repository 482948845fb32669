"""What the database refuses for a reason of its own, such as a schema that is not migrated yet, is no failure of an endpoint."""

from typing import Any

import pytest
from django.db import Error, connection
from django.test.utils import CaptureQueriesContext

from runs.db.sql import execute
from tests.support.outbound import dispatched, make_due, sent, statuses, subscribe
from tests.support.post_office import taking_hooks
from tests.support.triggers import make_event
from triggers.models import EventDelivery
from triggers.outbound.deliver import Outbound

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_half_upgraded_schema_costs_no_delivery_an_attempt(settings: Any) -> None:
    settings.WAKEFUL_OUTBOUND_NETWORKS = ["127.0.0.0/8"]
    with taking_hooks() as hook:
        subscription = subscribe(hook.url)
        for _ in range(20):
            make_event()
        dispatched()
        execute("ALTER TABLE triggers_event RENAME COLUMN is_tainted TO not_yet")
        outbound = Outbound()
        for _ in range(3):
            with CaptureQueriesContext(connection) as queries, pytest.raises(Error, match="is_tainted"):
                outbound.deliver_some()
            assert len(queries) < 20
        execute("ALTER TABLE triggers_event RENAME COLUMN not_yet TO is_tainted")

        outbound.deliver_some()
        assert EventDelivery.objects.filter(attempts__lte=1, tries=[]).count() == 20
        assert EventDelivery.objects.filter(status="pending", attempts=0).count() >= 3
        subscription.refresh_from_db()
        assert subscription.failing_since is None

        make_due(status="pending")
        sent(outbound)
        assert statuses() == ["delivered"] * 20
