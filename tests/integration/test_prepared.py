"""A transaction that is prepared outlives PostgreSQL, under another name."""

import psycopg
import pytest
from django.db import connection

from tests.support.late import record_late, session
from tests.support.stack import StackMaker
from tests.support.triggers import make_event
from triggers.dispatch.loop import Dispatcher
from triggers.models import Event


@pytest.mark.timeout(180)
def test_a_dispatcher_that_connects_again_waits_for_a_prepared_transaction(make_stack: StackMaker) -> None:
    stack = make_stack(own_servers=True)
    postgres = stack.servers.postgres
    assert postgres
    with psycopg.connect(stack.database_url, autocommit=True) as admin:
        admin.execute("ALTER SYSTEM SET max_prepared_transactions = 1")
    postgres.kill()
    postgres.start()
    with stack.orm():
        dispatcher = Dispatcher()
        dispatcher.connect()
        with session() as one:
            late = record_late(one)
            dispatcher.steps.horizon.advance()
            one.execute("PREPARE TRANSACTION 'late'")
        postgres.kill()
        postgres.start()
        connection.close()
        dispatcher.listener.close()
        dispatcher.connect()
        make_event()
        reached = dispatcher.steps.horizon.advance()

        with connection.cursor() as cursor:
            cursor.execute("COMMIT PREPARED 'late'")
        dispatcher.listener.close()
        assert reached < Event.objects.get(pk=late).seq
        assert dispatcher.steps.horizon.advance() >= Event.objects.get(pk=late).seq
