"""Events of other sources pass a bulk change of a watched table, unless that would change the order for a trigger."""

from collections.abc import Callable
from typing import Any

import pytest
from pytest_django import Settings

from tests.support.switches import make_switch
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch.failures import events
from triggers.dispatch.overtaking import overlaps
from triggers.dispatch.rules import Rules
from triggers.models import Event, Source

pytestmark = pytest.mark.django_db
CHANGE = "db.public.ticket.update"


@pytest.fixture
def bulk(settings: Settings) -> Source:
    """Its events fill four batches."""
    settings.WAKEFUL_DISPATCH_BATCH = 3
    source = Source.objects.create(slug="tickets", kind="table")
    for _ in range(12):
        make_event(type=CHANGE, source_id=source.pk)
    make_trigger("rows", types=["*"], source="tickets", overlap="queue")
    return source


def dispatched(batches: int) -> list[str]:
    """The first letters of the types of events that each batch has dispatched."""
    dispatch, found = events(Rules()), []
    for _ in range(batches):
        open_before = set(Event.objects.filter(dispatched_at=None).values_list("pk", flat=True))
        dispatch()
        done = Event.objects.filter(pk__in=open_before).exclude(dispatched_at=None).order_by("seq")
        found.append("".join(event.type[0] for event in done))
    return found


def test_batches_of_other_events_alternate_with_a_bulk_change(bulk: Source) -> None:
    make_trigger("orders", types=["order.*", "visit"], overlap="queue")
    for type in ("order.placed", "order.paid", "order.paid", "visit"):
        make_event(type=type)
    assert dispatched(6) == ["ddd", "ooo", "ddd", "v", "ddd", "ddd"]


@pytest.mark.parametrize(
    "hears_both",
    [
        lambda: make_trigger("all", types=["*"]),
        lambda: make_trigger("both", types=["order.paid", "db.public.*"]),
        lambda: make_switch(types="order.paid", of_types="db.public.*", key="event.subject", within="1h"),
    ],
)
def test_a_listener_that_matches_changes_too_gets_all_events_in_their_order(
    bulk: Source, hears_both: Callable[[], Any]
) -> None:
    make_trigger("orders", types=["order.*"], overlap="queue")
    hears_both()
    make_event(type="order.paid")
    make_event(type="order.paid")
    assert dispatched(5) == ["ddd", "ddd", "ddd", "ddd", "oo"]


def test_an_event_that_must_wait_lets_no_later_one_pass(bulk: Source) -> None:
    make_trigger("both", types=["visit", "db.public.*"])
    for type in ("order.paid", "visit", "order.paid"):
        make_event(type=type)
    assert dispatched(3) == ["ddd", "o", "ddd"]
    assert dispatched(3) == ["ddd", "ddd", "vo"]


def test_a_type_like_that_of_a_change_waits(bulk: Source) -> None:
    make_event(type=CHANGE)
    assert dispatched(2) == ["ddd", "ddd"]


@pytest.mark.parametrize(
    ("glob", "is_one"),
    [("order.*", False), ("*", True), ("d?.*", True), ("db.public.*", True), ("[do]*", True), ("dbx", False)],
)
def test_a_glob_may_match_a_change(glob: str, is_one: bool) -> None:
    assert overlaps(glob) is is_one
