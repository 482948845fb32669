"""What shards dispatch is decided as the dispatcher alone decides it."""

import pytest

from runs.models import Run
from tests.support.shards import InThreads
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
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
