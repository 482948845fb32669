import psycopg

from runs.models import NIL
from tests.support.stack import Stack
from tests.support.triggers import make_event, make_paused_trigger
from triggers.dispatch.hold import resume
from triggers.dispatch.offers import move
from triggers.dispatch_lock import LOCK
from triggers.models import Redispatch


def test_resume_includes_events_that_a_running_batch_is_holding(stack: Stack) -> None:
    with stack.orm(), psycopg.connect(stack.database_url) as dispatcher:
        trigger, event = make_paused_trigger(), make_event()
        dispatcher.execute("SELECT pg_advisory_xact_lock(%s::int, %s::int)", LOCK)
        held = "INSERT INTO triggers_decision (event_id, trigger_id, replay_id, outcome, reason) VALUES (%s, %s, %s, 'held', '')"
        dispatcher.execute(held, [event.id, trigger.id, NIL])

        resume(trigger, by="test")

        assert move() == 0  # not before the batch has committed
        dispatcher.commit()
        assert move() == 1
        assert Redispatch.objects.get().event_id == event.id
