from threading import Thread

import psycopg

from runs.models import NIL
from tests.stack import Stack, eventually
from tests.triggers.factories import make_event, make_paused_trigger
from triggers.accept import builtin_source
from triggers.control import resume
from triggers.leadership import LOCK
from triggers.models import Redispatch


def test_what_a_batch_under_way_is_holding_is_resumed_too(stack: Stack) -> None:
    with stack.orm(), psycopg.connect(stack.database_url) as dispatcher:
        builtin_source.cache_clear()
        trigger, event = make_paused_trigger(), make_event()
        dispatcher.execute("SELECT pg_advisory_xact_lock(%s::int, %s::int)", LOCK)
        held = "INSERT INTO triggers_decision (event_id, trigger_id, replay_id, outcome, reason) VALUES (%s, %s, %s, 'held', '')"
        dispatcher.execute(held, [event.id, trigger.id, NIL])
        batch = Thread(target=_commit_once_somebody_waits, args=(stack, dispatcher))
        batch.start()

        resume(trigger, by="test")

        batch.join()
        assert Redispatch.objects.get().event_id == event.id
    builtin_source.cache_clear()


def _commit_once_somebody_waits(stack: Stack, dispatcher: psycopg.Connection) -> None:
    try:
        waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        eventually(lambda: stack.query(waiting))
    finally:
        dispatcher.commit()
