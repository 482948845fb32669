"""What the dispatcher sends again and again is planned once: for a lone event, planning would cost more than execution."""

import pytest
from django.db import connection

from runs.db.sql import fetch
from runs.models import Run
from tests.hot_path.legs import incoming
from tests.support.triggers import make_trigger
from triggers.accept import accept
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules

pytestmark = pytest.mark.django_db(transaction=True)

FIRST = 5  # executions that PostgreSQL plans, to see whether that is worth it
PLANNED = """
SELECT statement, custom_plans FROM pg_prepared_statements WHERE custom_plans > %s
"""


@pytest.mark.parametrize("key", ["", "string(event.data.id)"])
@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "beside ready runs"])
def test_the_statements_for_a_lone_event_are_planned_once(key: str, is_alone: bool) -> None:
    connection.close()  # the statements of the tests before this one
    make_trigger(types=["order.paid"], key=key, overlap="queue" if key else "allow")
    rules = Rules()
    for number in range(3 * FIRST):
        accept([incoming(number)])
        assert dispatch(rules).dispatched == 1
        if is_alone:
            Run.objects.all().delete()

    assert not fetch(PLANNED, [FIRST + 1])
