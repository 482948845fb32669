"""Costly filters of subscriptions are answered beside the dispatcher: runs, other subscriptions and other events go on."""

from collections.abc import Iterator
from typing import Any

import pytest

from runs.models import Run
from tests.support.outbound import statuses, subscribe, subscribe_unchecked
from tests.support.triggers import HOURS, make_event, make_trigger
from tests.triggers.matching.test_slow_lane import REGEX, drain
from triggers.dispatch import failures
from triggers.dispatch.failures import Careful
from triggers.dispatch.listeners import cases_of_listeners
from triggers.dispatch.rules import Rules
from triggers.matching.lanes import Lane
from triggers.matching.pending import Item
from triggers.matching.slow_lane import Costly
from triggers.models import Decision, Event

pytestmark = pytest.mark.django_db


@pytest.fixture
def dispatch(settings: Any) -> Iterator[Careful[Item]]:
    settings.WAKEFUL_MATCH_TIME = settings.WAKEFUL_MATCH_TIME / 10
    costly = Costly(others=Costly(cases_of_listeners))
    yield failures.events(Rules(), costly)
    costly.close()


def test_an_unanswered_filter_delays_no_run_and_no_other_subscription(
    dispatch: Careful[Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lane, "put", lambda lane, job: None)  # the lanes do nothing
    make_trigger("plain", types=["*"])
    subscribe_unchecked(slug="hostile", filter=HOURS)
    subscribe(slug="plain")
    hostile, other = make_event(data={"text": "a"}), make_event(type="order.placed")

    batches = [dispatch(), dispatch()]

    assert [batch.has_progressed for batch in batches] == [True, False] and dispatch.wait is not None
    assert [event for run in Run.objects.order_by("seq") for event in run.event_ids] == [hostile.pk, other.pk]
    assert (statuses(name="plain"), statuses(name="hostile")) == (["pending"], [])
    assert list(Event.objects.filter(dispatched_at=None)) == [hostile]


@pytest.mark.django_db(transaction=True, serialized_rollback=True)  # lanes read large payloads in sessions of their own
def test_answers_come_later_and_nothing_is_done_twice(dispatch: Careful[Item]) -> None:
    make_trigger("plain", types=["*"], policy={"rate": "2/h", "overflow": "drop"})
    make_trigger("regex", types=["*"], filter=REGEX)
    subscribe_unchecked(slug="hostile", filter=HOURS)
    subscribe(slug="regex", filter=REGEX)
    subscribe(slug="plain")
    make_event(data={"text": "a"})
    make_event(data={"text": "b" * 300_000})

    drain(dispatch)

    assert (statuses(name="hostile"), statuses(name="regex")) == (["error"] * 2, ["pending"])
    assert statuses(name="plain") == ["pending"] * 2
    assert sorted(Run.objects.values_list("trigger", flat=True)) == ["plain", "plain", "regex"]
    assert not Decision.objects.exists()
