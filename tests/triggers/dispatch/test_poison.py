"""One event that cannot be dispatched, however strange, stops no other."""

import random
import string
from typing import Any

import pytest

from runs.actions.event_runs import runs_of_event
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch import failures
from triggers.dispatch.hold import pause, resume
from triggers.dispatch.offers import move
from triggers.dispatch.rules import Rules
from triggers.matching import match
from triggers.models import Decision, Event, Redispatch

pytestmark = pytest.mark.django_db

# Random, because PostgreSQL would compress anything else into an index entry.
LONG = "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=20_000))


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has failed is tried again at once."""
    monkeypatch.setattr(failures, "RETRY", 0.0)


def dispatch_all() -> None:
    work = failures.events(Rules())
    for _ in range(50):
        work()
        if not Event.objects.filter(dispatched_at=None).exists():
            return
    pytest.fail("some events are left")


def test_a_key_too_long_for_an_index_is_still_a_key() -> None:
    make_trigger(key="event.data.id", overlap="queue")
    first, same, other = (make_event(data={"id": id}) for id in (LONG, LONG, LONG[1:]))

    dispatch_all()

    [a], [b], [c] = (runs_of_event(event.id) for event in (first, same, other))
    assert a.key == b.key != c.key
    assert [run.ready_at is not None for run in (a, b, c)] == [True, False, True]


@pytest.mark.parametrize("filter", ["event.data.n > 5", 'string(event.data.n).matches("^[1i]")'])
def test_a_filter_compares_a_number_of_any_size(filter: str) -> None:
    make_trigger(filter=filter)
    event = make_event(data={"n": 10**400})

    dispatch_all()

    assert len(runs_of_event(event.id)) == 1


def test_an_input_may_contain_a_time() -> None:
    make_trigger(input={"at": "event.time", "both": "[event.time]"})
    event = make_event()

    dispatch_all()

    [run] = runs_of_event(event.id)
    assert run.input == {"at": event.received_at.isoformat(), "both": [event.received_at.isoformat()]}


@pytest.mark.parametrize("expression", ["b'x'", "0.0 / 0.0", "{1: 2.0 / 0.0}"])
def test_an_input_that_is_no_json_is_a_decision(expression: str) -> None:
    make_trigger(input={"value": expression})
    other = make_trigger("other")
    event = make_event()

    dispatch_all()

    assert Decision.objects.get(event=event).outcome == "error"
    assert [run.trigger_id for run in runs_of_event(event.id)] == [other.id]


@pytest.mark.parametrize("error", [TypeError("a bug"), RecursionError("too deep")])
def test_an_unexpected_error_is_a_decision_of_that_event_only(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_trigger()
    poisoned, healthy = make_event(subject="poison"), make_event()
    real = match.decide

    def decide(item: Any, *arguments: Any, **named: Any) -> Any:
        if item.subject == "poison":
            raise error
        return real(item, *arguments, **named)

    monkeypatch.setattr(match, "decide", decide)
    dispatch_all()

    decision = Decision.objects.get()
    assert (decision.event_id, decision.outcome, decision.reason) == (poisoned.id, "error", repr(error))
    assert len(runs_of_event(healthy.id)) == 1


def test_an_event_held_and_resumed_twice_is_offered_once() -> None:
    trigger = make_trigger(key="event.data.id", overlap="queue")
    pause(trigger, reason="", by="test")
    event = make_event(data={"id": 1})
    dispatch_all()
    for _ in range(2):
        resume(trigger, by="test")
        move()
        pause(trigger, reason="", by="test")

    assert Redispatch.objects.filter(event=event, dispatched_at=None).count() == 1
