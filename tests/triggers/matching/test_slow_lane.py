"""Costly cases are answered beside the dispatcher: other events and other triggers go on, the order of a key is kept, and no event
leads to anything twice."""

import queue
from collections.abc import Iterator
from typing import Any

import pytest

from runs.actions.event_runs import runs_of_event
from runs.models import Run
from tests.support.stack import eventually
from tests.support.triggers import HOURS, make_event, make_trigger
from triggers.dispatch import failures
from triggers.dispatch.failures import Careful
from triggers.dispatch.rules import Rules
from triggers.matching.lanes import Job, Lane
from triggers.matching.pending import Item, read_items
from triggers.matching.slow_lane import Costly
from triggers.models import Decision, Event, Trigger

pytestmark = pytest.mark.django_db
REGEX = 'event.data.text.matches("a+")'


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> "queue.SimpleQueue[Job]":
    """The lanes do nothing: what is costly is never answered."""
    taken: queue.SimpleQueue[Job] = queue.SimpleQueue()
    monkeypatch.setattr(Lane, "put", lambda lane, job: taken.put(job))
    return taken


@pytest.fixture
def costly() -> Iterator[Costly]:
    costly = Costly()
    yield costly
    costly.close()


@pytest.fixture
def dispatch(settings: Any, costly: Costly) -> Careful[Item]:
    settings.WAKEFUL_MATCH_TIME = settings.WAKEFUL_MATCH_TIME / 10
    return failures.events(Rules(), costly)


def drain(dispatch: Careful[Item]) -> None:
    eventually(lambda: (dispatch(), not Event.objects.filter(dispatched_at=None).exists())[1], every=0.01)


def outcomes(event: Event) -> dict[str, str]:
    decided = Decision.objects.filter(event=event).values_list("trigger__slug", "outcome")
    return {**dict(decided), **{run.trigger: "run" for run in runs_of_event(event.pk)}}


@pytest.mark.usefixtures("jobs")
def test_an_unanswered_filter_delays_neither_other_events_nor_other_triggers(
    dispatch: Careful[Item],
) -> None:
    make_trigger("hostile", types=["*"], filter=HOURS)
    make_trigger("keyed", types=["cart.*"], filter=REGEX, key="event.data.n", overlap="queue")
    make_trigger("plain", types=["*"])
    first, second = (make_event(type="cart.updated", data={"text": "a", "n": 1}) for _ in range(2))
    large = make_event(type="cart.updated", body=b" " * 100_000, data={"text": "a" * 100_000})
    other = make_event(type="order.placed")

    batches = [dispatch(), dispatch()]

    assert [outcomes(event) for event in (first, second, other)] == [{"plain": "run"}] * 3
    assert outcomes(large) == {}  # which triggers it concerns is known when it has been read
    assert [batch.has_progressed for batch in batches] == [True, False]
    assert dispatch.wait is not None


def test_answers_come_later_and_nothing_is_done_twice(dispatch: Careful[Item]) -> None:
    make_trigger("hostile", types=["*"], filter=HOURS)
    make_trigger("regex", types=["*"], filter=REGEX, policy={"rate": "2/h", "overflow": "drop"})
    make_trigger("plain", types=["*"], policy={"rate": "1/h", "overflow": "drop"})
    events = [make_event(data={"text": text}) for text in ("a", "b")]

    drain(dispatch)

    for event, regex, plain in zip(events, ("run", None), ("run", "rate"), strict=True):
        found = outcomes(event)
        assert (found["hostile"], found.get("regex"), found["plain"]) == ("error", regex, plain)
    assert "WAKEFUL_MATCH_TIME" in Decision.objects.filter(trigger__slug="hostile")[0].reason
    assert Run.objects.count() == 2


def test_a_quick_answer_that_comes_late_waits_for_no_slow_one(
    dispatch: Careful[Item], costly: Costly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costly.lanes.slow, "put", lambda job: None)  # it is busy with other events
    monkeypatch.setattr(costly.lanes, "wait", lambda asked, seconds: None)
    make_trigger("hostile", types=["*"], filter=HOURS)
    make_trigger("regex", types=["*"], filter=REGEX)
    make_trigger("keyed", types=["*"], filter=REGEX, key="'k'", overlap="queue")
    events = [make_event(data={"text": "a"}) for _ in range(2)]

    expected = {"regex": "run", "keyed": "run"}
    eventually(lambda: (dispatch(), [outcomes(event) for event in events] == [expected] * 2)[1], every=0.01)

    assert len(costly.held) == 2 and not costly.ready()


def test_another_dispatcher_that_takes_over_adds_only_what_is_missing(
    dispatch: Careful[Item], costly: Costly, jobs: "queue.SimpleQueue[Job]", monkeypatch: pytest.MonkeyPatch
) -> None:
    make_trigger("regex", types=["*"], filter=REGEX)
    make_trigger("plain", types=["*"], policy={"rate": "2/h", "overflow": "drop"})
    event = make_event(data={"text": "a"})
    dispatch()
    assert outcomes(event) == {"plain": "run"} and not jobs.empty()

    monkeypatch.undo()
    costly.known.clear()  # as in another process
    drain(failures.events(Rules(), costly))

    assert outcomes(event) == {"regex": "run", "plain": "run"}
    assert not Decision.objects.exists()


def test_events_of_a_trigger_with_a_key_wait_for_those_before_them(dispatch: Careful[Item]) -> None:
    make_trigger(
        "keyed", types=["cart.*"], filter="event.data.items.filter(x, x > 0).size() > 0", key="'k'", overlap="queue"
    )
    make_trigger("other", types=["*"])
    slow = make_event(type="cart.updated", data={"items": [1] * 3000})
    quick, unrelated = make_event(type="cart.updated", data={"items": [1]}), make_event(type="order.placed")

    drain(dispatch)

    keyed = [run.event_ids[0] for run in Run.objects.filter(trigger="keyed").order_by("seq")]
    assert keyed in ([slow.pk, quick.pk], [quick.pk])  # the slow one is an error on a slow machine
    assert outcomes(unrelated) == {"other": "run"}
    if slow.pk not in keyed:
        assert outcomes(slow)["keyed"] == "error"


def test_an_answer_to_an_expression_that_was_edited_is_requested_again(
    dispatch: Careful[Item], jobs: "queue.SimpleQueue[Job]"
) -> None:
    make_trigger("regex", types=["*"], filter=REGEX)
    make_event(data={"text": "a"})
    dispatch()
    Trigger.objects.update(filter='event.data.text.matches("b+")')
    dispatch()
    filters = [jobs.get().cases[0].question.filter for _ in range(jobs.qsize())]

    assert filters[0] == REGEX


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("size", [100_000, 300_000])  # parsed by a thread, and in the evaluator's process
def test_a_large_payload_is_read_and_narrowed_down_beside_the_dispatcher(
    size: int, settings: Any, costly: Costly
) -> None:
    settings.WAKEFUL_MAX_MATCH = 2 * size
    for number in range(12):
        make_trigger(f"t{number}", types=["*"], filter=f'event.data.customer == "c{number}"', key="event.data.customer")
    make_trigger("plain", types=["*"])
    large, beyond = (make_event(data={"customer": "c7", "text": "a" * length}) for length in (size, 3 * size))
    assert all(item.is_large for item in read_items(10))  # although it is stored in a hundredth of its size

    drain(failures.events(Rules(), costly))

    assert outcomes(large) == {"t7": "run", "plain": "run"}
    assert outcomes(beyond) == {"plain": "run", **{f"t{number}": "error" for number in range(12)}}
