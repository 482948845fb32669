"""A batch is bounded by what it makes, however many triggers an event has."""

from collections.abc import Callable

import pytest

from runs.models import Run
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch import failures
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.matching.slow_lane import Costly
from triggers.models import Decision, Event

pytestmark = pytest.mark.django_db


def undispatched() -> int:
    return Event.objects.filter(dispatched_at=None).count()


def batches(most: int, until: Callable[[], bool]) -> list[int]:
    """How many runs and decisions each batch made, until then."""
    rules, made = Rules(), []
    while not until():
        batch = dispatch(rules, most)
        assert batch.has_progressed
        made.append(batch.made)
    return made


def test_events_with_many_triggers_go_in_small_batches_and_delay_no_other() -> None:
    for number in range(10):
        make_trigger(f"t{number}", types=["order.*"])
    make_trigger("other")
    for _ in range(12):
        make_event(type="order.placed")
    unrelated = make_event()

    made = batches(40, lambda: not Event.objects.filter(pk=unrelated.pk, dispatched_at=None).exists())

    assert len(made) == 1
    assert undispatched() > 0
    made += batches(40, lambda: not undispatched())
    assert max(made) <= 41
    assert Run.objects.count() == 12 * 10 + 1


@pytest.mark.parametrize("overlap", ["allow", "skip", "queue", "queue_one"])
def test_an_event_with_more_triggers_than_a_batch_holds_goes_in_pieces(overlap: str) -> None:
    for number in range(25):
        make_trigger(f"t{number:02}", types=["order.*"], overlap=overlap, policy={"rate": "5/h"})
    make_trigger("other")
    large, later = make_event(type="order.placed"), make_event()

    first = dispatch(Rules(), 10)

    assert (first.dispatched, first.partly) == (1, 1)
    assert Run.objects.filter(event_ids=[later.pk]).exists()
    assert Run.objects.filter(event_ids=[large.pk]).count() == 5
    # Each batch with fresh rules, as after a crash.
    while undispatched():
        batch = dispatch(Rules(), 10)
        assert batch.has_progressed
        assert batch.made <= 10
    assert Run.objects.filter(event_ids=[large.pk]).count() == 25
    assert not Decision.objects.exists()


def test_a_larger_batch_decides_only_what_the_smaller_one_before_has_left_of_an_event() -> None:
    for number in range(20):
        make_trigger(f"t{number:02}", types=["order.*"], overlap="skip", key="event.subject")
    make_event()
    careful = failures.events(Rules(), costly := Costly())
    careful()
    costly.since = Event.objects.get().seq  # this dispatcher has led since before the next event
    make_event(type="order.placed", subject="a")

    careful.most = 20  # as after failures
    while undispatched():
        assert careful().has_progressed

    assert Run.objects.count() == 20
    assert not Decision.objects.exists()
    assert not costly.known


def test_the_order_of_a_key_holds_while_an_event_goes_in_pieces() -> None:
    for number in range(6):
        make_trigger(f"t{number}", key="event.data.id", overlap="queue")
    first, second = make_event(data={"id": 1}), make_event(data={"id": 1})

    while undispatched():
        assert dispatch(Rules(), 4).has_progressed

    for number in range(6):
        runs = Run.objects.filter(trigger=f"t{number}").order_by("seq")
        assert [run.event_ids for run in runs] == [[first.pk], [second.pk]]


def test_refusals_of_a_large_event_are_decided_once() -> None:
    for number in range(12):
        make_trigger(f"t{number:02}", policy={"timeout": "soon"})
    make_event()

    made = batches(4, lambda: not undispatched())

    assert sum(made) == Decision.objects.filter(outcome="error").count() == 12
