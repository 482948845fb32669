"""Runs whose events lead back to themselves: how deep, and how fast."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st
from uuid_utils.compat import uuid7

from runs.models import NIL, Run
from tests.support.ahead import set_ahead
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch.admission import Ledger, admit
from triggers.dispatch.batch import dispatch
from triggers.dispatch.close_windows import close_windows
from triggers.dispatch.rates import Use
from triggers.dispatch.rules import Rules
from triggers.matching.index import Rule
from triggers.matching.matches import Match
from triggers.models import Decision, Event, Trigger, Window
from triggers.sources.emitted_events import record_emitted

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def dispatch_all() -> None:
    while dispatch(Rules()).dispatched:
        pass


def emit(run: Run, type: str, *, times: int = 1) -> None:
    """What a run emits, once the dispatcher has it."""
    record_emitted(
        [
            {
                "ce_source": f"agents/{run.agent}", "ce_id": f"{run.id}:{type}:{number}", "type": type, "subject": "",
                "data": None, "root_id": str(run.root_id), "cause_event_id": str(run.event_ids[-1]),
                "cause_run_id": str(run.id), "depth": run.depth + 1, "chain": [*run.chain, run.trigger],
            }
            for number in range(times)
        ]
    )  # fmt: skip


def newest(trigger: str) -> Run:
    return Run.objects.filter(trigger=trigger).order_by("-seq")[0]


def loops() -> list[str]:
    return list(Decision.objects.filter(outcome="loop").order_by("event__seq").values_list("reason", flat=True))


@pytest.fixture
def ring(settings: Any) -> tuple[Trigger, Trigger]:
    """Two triggers that wake each other."""
    settings.WAKEFUL_LOOP_RATE = "2/1m"
    return make_trigger("orders", types=["order"]), make_trigger("digest", types=["digest"])


@pytest.mark.django_db
def test_the_chain_goes_with_event_and_run(ring: tuple[Trigger, Trigger]) -> None:
    make_event(type="order")
    dispatch_all()
    emit(newest("orders"), "digest")
    dispatch_all()

    assert newest("orders").chain == []
    assert Event.objects.get(type="digest").chain == ["orders"]
    assert newest("digest").chain == ["orders"]


@pytest.mark.django_db
def test_a_loop_goes_round_as_often_as_its_rate_allows_and_then_the_decision_shows_it(
    ring: tuple[Trigger, Trigger],
) -> None:
    make_event(type="order")
    dispatch_all()
    for _ in range(3):
        emit(newest("orders"), "digest")
        dispatch_all()
        emit(newest("digest"), "order")
        dispatch_all()

    assert Counter(Run.objects.values_list("trigger", flat=True)) == {"orders": 3, "digest": 3}
    [reason] = loops()
    assert "orders → digest → orders → digest → orders → digest → orders is a loop" in reason
    assert "digest has woken orders 2 times in 1 min" in reason


@pytest.mark.django_db
def test_an_old_loop_may_go_round_again(ring: tuple[Trigger, Trigger], monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        make_event(type="order", chain=["orders", "digest"])
    dispatch_all()
    set_ahead(monkeypatch, timedelta(minutes=1))
    make_event(type="order", chain=["orders", "digest"])
    dispatch_all()

    assert len(loops()) == 1
    assert Run.objects.count() == 3


@pytest.mark.django_db
def test_a_loop_that_went_round_while_the_clock_was_ahead_may_go_round_again(
    ring: tuple[Trigger, Trigger], monkeypatch: pytest.MonkeyPatch
) -> None:
    for ahead in (timedelta(days=1), timedelta(days=1), timedelta(), timedelta(seconds=61)):
        set_ahead(monkeypatch, ahead)
        make_event(type="order", chain=["orders", "digest"])
        dispatch_all()

    assert len(loops()) == 1
    assert Run.objects.count() == 3


@pytest.mark.django_db
def test_a_fan_out_is_no_loop(ring: tuple[Trigger, Trigger]) -> None:
    make_event(type="order")
    dispatch_all()
    emit(newest("orders"), "digest", times=50)
    dispatch_all()

    assert Run.objects.filter(trigger="digest").count() == 50
    assert not loops()


@pytest.mark.django_db
def test_each_way_into_a_trigger_has_a_rate_of_its_own(ring: tuple[Trigger, Trigger]) -> None:
    for last in ("digest", "digest", "invoices", "invoices"):
        make_event(type="order", chain=["orders", last])
    dispatch_all()

    assert Run.objects.count() == 4


@pytest.mark.django_db
def test_a_window_remembers_every_trigger_that_led_to_it(ring: tuple[Trigger, Trigger]) -> None:
    make_trigger("sum", types=["sum"], policy={"batch": 2})
    make_event(type="sum", chain=["orders"])
    dispatch_all()
    assert Window.objects.get().chain == ["orders"]
    make_event(type="sum", chain=["shop", "digest"])
    dispatch_all()

    assert newest("sum").chain == ["orders", "shop", "digest"]


@pytest.mark.django_db
def test_a_window_takes_no_more_of_a_loop_than_its_rate_allows(ring: tuple[Trigger, Trigger]) -> None:
    make_trigger("sum", types=["sum"], policy={"debounce": 5})
    for _ in range(3):
        make_event(type="sum", chain=["sum"])
    dispatch_all()
    Window.objects.update(due_at=datetime(2026, 1, 1, tzinfo=UTC))
    close_windows(Rules())

    assert len(newest("sum").event_ids) == 2
    assert len(loops()) == 1


@pytest.mark.django_db
def test_a_run_that_takes_events_along_has_their_chains_as_well(ring: tuple[Trigger, Trigger]) -> None:
    make_trigger("sum", types=["sum"], overlap="queue_one")
    make_event(type="sum", chain=["orders"])
    dispatch_all()
    make_event(type="sum", chain=["digest"])  # joins the run of an earlier batch
    dispatch_all()

    [run] = Run.objects.all()
    assert sorted(run.chain) == ["digest", "orders"]


# No database: what admission does of a loop, whatever comes


def rule(slug: str, id: UUID) -> Rule:
    return Rule(id=id, slug=slug, agent=slug)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),  # the trigger it wakes
            st.lists(st.sampled_from("abcd"), max_size=5),  # the chain that led to it
            st.integers(0, 40),  # seconds since the one before
        ),
        max_size=60,
    ),
    st.integers(1, 4),
)
def test_no_loop_is_faster_than_the_rate_and_nothing_else_is_slowed_down(
    events: list[tuple[str, list[str], int]], limit: int
) -> None:
    ids = {slug: uuid4() for slug in "abc"}
    uses: dict[str, Use] = {}
    started: dict[tuple[str, str], list[datetime]] = {}
    now, loose, expected = NOW, 0, 0
    with override_settings(WAKEFUL_LOOP_RATE=f"{limit}/1m"):
        for slug, chain, wait in events:
            now += timedelta(seconds=wait)
            event = uuid7()
            match = Match(
                rule=rule(slug, ids[slug]), event_ids=[event], root_id=event, depth=len(chain), chain=chain, replay_id=UUID(NIL)
            )  # fmt: skip
            if match.loop:
                uses.setdefault(match.loop, Use())
            ledger = Ledger(now=now, uses=uses)
            admit([match], ledger)
            if slug in chain:
                started.setdefault((chain[-1], slug), []).extend([now] * len(ledger.new))
            else:
                expected, loose = expected + 1, loose + len(ledger.new)

    assert loose == expected
    for times in started.values():
        for first, later in zip(times, times[limit:], strict=False):
            assert later - first >= timedelta(minutes=1)
