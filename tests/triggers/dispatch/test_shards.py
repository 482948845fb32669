"""What shards dispatch is decided as the dispatcher alone decides it."""

import pytest

from runs.models import Run
from tests.support.shards import InThreads
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch import failures
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
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
