"""What the dispatcher sends again and again is planned once: for a lone event, planning would cost more than execution."""

import pytest
from django.db import connection

from runs.db.sql import database_now, execute, fetch
from runs.models import Run
from runs.ports import Sought
from tests.hot_path.legs import incoming
from tests.support.triggers import make_trigger
from triggers.accept import accept
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.events.read import find_event

pytestmark = pytest.mark.django_db(transaction=True)

FIRST = 5  # executions that PostgreSQL plans, to see whether that is worth it
PLANNED = """
SELECT statement, custom_plans FROM pg_prepared_statements WHERE custom_plans > %s
"""


EVENTS = """
INSERT INTO triggers_event (id, source_id, ce_source, ce_id, type, subject, data_error, body_sha256, received_at, dispatched_at, root_id,
                            depth)
SELECT id, (SELECT id FROM triggers_source WHERE slug = 'cli'), '', id::text, 'order.paid', '', '', '', now(), now(), id, 0
FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, 20000)) made
"""


def test_a_search_for_a_rare_event_among_many_is_planned_once() -> None:
    execute(EVENTS)
    execute("ANALYZE triggers_event")
    [(root,)] = fetch("SELECT id FROM triggers_event ORDER BY seq LIMIT 1")
    sought = Sought(
        type="order.returned",
        match={"order": 7},
        subject="",
        run_id=root,
        after_event=None,
        since=database_now(),
        but=[],
        root=root,
    )
    for _ in range(3 * FIRST):
        assert find_event(sought).event_id is None

    assert not fetch(PLANNED, [FIRST + 1])


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
