"""What shards dispatch is decided as the dispatcher alone decides it."""

import pytest
from django.db import connection

from runs.db.sql import execute
from runs.models import Run
from tests.support.shards import InThreads
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch import failures, shard
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.dispatch.shard import Request, dump
from triggers.matching.match import match_items
from triggers.matching.pending import read_items
from triggers.matching.slow_lane import Costly
from triggers.models import Decision, Event

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_event_with_more_triggers_than_a_batch_holds_goes_in_pieces() -> None:
    for number in range(501):  # one more than a piece
        make_trigger(f"t{number:03}", types=["order.*"], overlap="skip", key="event.subject")
    large, rules = make_event(type="order.placed", subject="a"), Rules()
    for _ in range(2):
        make_event()
        dispatch(rules, beside=InThreads(rules, 2))

    assert not Event.objects.filter(dispatched_at=None).exists()
    assert Run.objects.filter(event_ids=[large.pk]).count() == 501
    assert not Decision.objects.exists()


def test_answers_for_events_that_shards_have_dispatched_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    make_trigger(filter='event.data.text.matches("a+")')
    rules, costly = Rules(), Costly()
    wait = costly.lanes.wait
    monkeypatch.setattr(costly.lanes, "wait", lambda asked, seconds: wait(asked, 60.0))  # on a slow machine, too
    careful = failures.events(rules, costly, beside=InThreads(rules, 2))
    for _ in range(4):
        make_event(data={"text": "a"})

    assert careful().dispatched == Run.objects.count() == 4
    assert not costly.known
    costly.close()


def test_a_shard_reads_all_rules_again_after_it_has_lost_its_session() -> None:
    """After a failover or a restore, the same version may be that of other rules."""
    make_trigger(policy={"priority": 1})
    of_shard = Rules()
    of_shard.current()
    execute("ALTER TABLE triggers_trigger DISABLE TRIGGER USER")
    execute("UPDATE triggers_trigger SET policy = '{\"priority\": 2}'")
    execute("ALTER TABLE triggers_trigger ENABLE TRIGGER USER")
    connection.close()  # of the shard as well as of its dispatcher
    make_event()
    of_dispatcher = Rules()
    part = dump(match_items(read_items(1), of_dispatcher.current()))
    assert of_dispatcher.version and of_shard.version
    assert of_dispatcher.version[0][:2] == of_shard.version[0][:2]

    connection.close()
    answer = shard.answer(Request(1, of_dispatcher.version[0][:2], part), of_shard, 0)

    assert answer and answer.dispatched == 1
    assert Run.objects.get().priority == 2
