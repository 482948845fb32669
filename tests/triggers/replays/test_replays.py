"""Replays of many events: each once, at the rate, to the chosen triggers; paused, resumed and cancelled."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from config.health.problems import problems
from config.health.situation import read_situation as situation_now
from runs.db.sql import execute
from runs.exceptions import IllegalState
from runs.models import AuditEntry, Run
from runs.retention.sweep import Step
from tests.support.triggers import make_event, make_paused_trigger, make_trigger
from triggers.dispatch import replay_pieces as pieces
from triggers.dispatch.batch import dispatch
from triggers.dispatch.looks import read_dispatch_timers
from triggers.dispatch.replay_pieces import BURST, Allowance, advance, pieces_apart
from triggers.dispatch.rules import Rules
from triggers.events.search import FieldIs, Search
from triggers.exceptions import RuleError, TriggerDisabled
from triggers.models import Decision, Event, Redispatch, Replay
from triggers.replays.control import cancel_replay, pause_replay, resume_replay
from triggers.replays.preview import preview, sample
from triggers.replays.progress import progress
from triggers.replays.start import start_replay
from triggers.retention import prune
from triggers.retention.payloads import remove_payloads

pytestmark = pytest.mark.django_db

FAST = 1000.0


def archived(count: int = 1, **fields: Any) -> list[Event]:
    events = [make_event(**fields) for _ in range(count)]
    execute("UPDATE triggers_event SET dispatched_at = now() WHERE id = ANY(%s)", [[event.pk for event in events]])
    return events


def start(search: Search = Search(), **options: Any) -> Replay:  # noqa: B008
    return start_replay(search, **{"rate": FAST, "everything": True, "by": "test", **options})


def now_due(replay: Replay) -> None:
    """As if the time of the next pieces had come."""
    past = timezone.now() - timedelta(minutes=1)
    Replay.objects.filter(pk=replay.pk).update(due_at=past, look_at=past)


def carry_out(replay: Replay) -> Replay:
    """What the dispatcher does, until the replay has ended."""
    rules = Rules()
    for _ in range(40):
        now_due(replay)
        advance(rules)
        while dispatch(rules).has_progressed:
            pass
        replay.refresh_from_db()
        if replay.ended_at:
            return replay
    pytest.fail(f"it does not end: {replay.status} {replay.error}")


def replayed(replay: Replay) -> list[tuple[str, UUID]]:
    """Trigger and event of its runs, in the order of dispatch."""
    runs = Run.objects.filter(replay_id=replay.pk).order_by("seq")
    return [(run.trigger, event_id) for run in runs for event_id in run.event_ids]


@pytest.mark.parametrize(("piece", "scan"), [(500, 2_000), (2, 3), (3, 1)])
def test_each_event_is_replayed_once_in_order(monkeypatch: pytest.MonkeyPatch, piece: int, scan: int) -> None:
    monkeypatch.setattr(pieces, "PIECE", piece)
    monkeypatch.setattr(pieces, "SCAN", scan)
    make_trigger("greeter")
    wanted = []
    for n in range(7):
        wanted += archived(data={"n": n % 2}) if n % 2 else []
        archived(data={"n": 0})

    done = carry_out(start(Search(type="visitor.*", fields=(FieldIs.parse("n=1"),))))

    assert replayed(done) == [("greeter", event.pk) for event in wanted]
    assert (done.status, done.total, done.dispatched) == ("done", 3, 3)
    assert progress(done).runs == {"queued": 3}


def test_runs_have_the_priority_of_the_replay() -> None:
    make_trigger(policy={"priority": 2})
    archived()

    carry_out(start(priority=7))

    assert [run.priority for run in Run.objects.all()] == [7]
    assert Run.objects.get().policy["priority"] == 7


def test_chosen_triggers_get_what_they_listen_to_and_their_filters_pass() -> None:
    make_trigger("other")
    chosen = make_trigger("chosen", types=["order.*"], filter="event.data.n == 1")
    [wanted] = archived(type="order.placed", data={"n": 1})
    archived(type="order.placed", data={"n": 2})
    archived(type="visitor.came")

    done = carry_out(start(triggers=[chosen]))

    assert replayed(done) == [("chosen", wanted.pk)]
    assert (done.dispatched, done.unheard) == (2, 1)


def test_events_without_payload_are_counted_and_skipped() -> None:
    make_trigger()
    gone, kept = archived(2)
    remove_payloads([gone.pk])

    found = preview(Search())
    done = carry_out(start())

    assert (found.events, found.without_payload) == (2, 1)
    assert (replayed(done), done.without_payload) == ([("greeter", kept.pk)], 1)


def test_a_payload_that_goes_after_the_start_is_counted_as_well() -> None:
    make_trigger()
    events = archived(2)
    replay = start()
    remove_payloads([events[0].pk])

    assert (carry_out(replay).without_payload, len(replayed(replay))) == (1, 1)


def test_events_that_come_later_do_not_take_part() -> None:
    make_trigger()
    archived()
    replay = start()
    Replay.objects.update(end=timezone.now())
    later = archived()[0]

    assert later.pk not in {event for _, event in replayed(carry_out(replay))}


def test_the_preview_names_the_triggers_and_a_sample_matches_their_filters() -> None:
    make_trigger("all")
    make_trigger("few", filter="event.data.n == 1")
    make_trigger("none", types=["order.*"])
    make_trigger("off", enabled=False)
    events = [archived(data={"n": n})[0] for n in (1, 2)]
    archived(type="stock.counted")

    found = preview(Search())
    sampled = {one.event.pk: {trigger.slug for trigger in one.triggers} for one in sample(Search(type="visitor.*"))}

    assert [(one.trigger.slug, one.events) for one in found.listeners] == [("all", 2), ("few", 2)]
    assert (found.events, found.unheard) == (3, 1)
    assert sampled == {events[0].pk: {"all", "few"}, events[1].pk: {"all"}}


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"rate": 0}, "rate"),
        ({"rate": 1001}, "rate"),
        ({"rate": float("nan")}, "rate"),
        ({"priority": 10}, "priority"),
        ({"search": Search(type="unknown")}, "start"),
        ({"search": Search(start=datetime(2999, 1, 1, tzinfo=UTC))}, "start"),
        ({"search": Search(type="stock.counted")}, "triggers"),
    ],
)
def test_a_replay_that_makes_no_sense_is_refused(options: dict[str, Any], field: str) -> None:
    make_trigger()
    archived()
    archived(type="stock.counted")

    with pytest.raises(RuleError) as refused:
        start(**options)

    assert refused.value.field == field
    assert not Replay.objects.exists()


def test_a_disabled_trigger_and_one_replay_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triggers.replays.start.MOST_UNDERWAY", 1)
    make_trigger()
    archived()
    with pytest.raises(TriggerDisabled):
        start(triggers=[make_trigger("off", enabled=False)])
    start()

    with pytest.raises(IllegalState, match="have not ended"):
        start()


@pytest.mark.parametrize("rate", [0.5, 3.0, 100.0, 1000.0])
def test_the_rate_is_held_whenever_the_dispatcher_looks(rate: float) -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    replay, now, taken = Replay(rate=rate, due_at=began), began, 0
    while now < began + timedelta(seconds=120):
        allowed = Allowance.at(now, replay)
        taken += allowed.events
        replay.due_at = allowed.due_at + timedelta(seconds=allowed.events / rate)
        late = 0.7 * (taken % 3) / 2
        now = replay.due_at + timedelta(seconds=pieces_apart(rate) - 1 / rate + late)

    assert taken / (replay.due_at - began).total_seconds() == pytest.approx(rate, rel=0.001)


def test_a_long_delay_is_not_made_up_for() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    replay = Replay(rate=100, due_at=now - timedelta(minutes=5))

    assert Allowance.at(now, replay).events == 100 * BURST.total_seconds() + 1


def test_the_dispatcher_looks_when_the_next_piece_is_due() -> None:
    make_trigger()
    archived(3)
    replay = start(rate=0.5)
    assert (due := read_dispatch_timers().replay) is not None and due <= timedelta()

    advance(Rules())

    replay.refresh_from_db()
    assert replay.dispatched == 1
    assert (due := read_dispatch_timers().replay) is not None and timedelta(seconds=1) < due <= timedelta(seconds=2)


def test_a_paused_replay_takes_nothing_until_it_is_resumed() -> None:
    make_trigger()
    archived(2)
    replay = pause_replay(start(), by="test")
    now_due(replay)

    assert (advance(Rules()), read_dispatch_timers().replay) == (0, None)
    with pytest.raises(IllegalState, match="is paused"):
        pause_replay(replay, by="test")

    assert len(replayed(carry_out(resume_replay(replay, by="test")))) == 2
    assert [entry.action for entry in AuditEntry.objects.order_by("id")] == ["start", "pause", "resume"]
    with pytest.raises(IllegalState, match="is done"):
        cancel_replay(replay, by="test")


@pytest.mark.parametrize("overlap", ["allow", "queue"])
def test_a_cancelled_replay_starts_no_further_run_and_cancels_queued_ones(overlap: str) -> None:
    make_trigger(overlap=overlap)
    archived(3)
    replay, rules = start(), Rules()
    now_due(replay)
    advance(rules)
    dispatch(rules)
    archived()
    more = start()
    now_due(more)
    advance(rules)  # they wait for dispatch

    cancel_replay(replay, by="test")
    cancel_replay(more, by="test")
    carry_out(replay)
    carry_out(more)

    assert {run.status for run in Run.objects.all()} == {"cancelled"}
    assert {run.replay_id for run in Run.objects.all()} == {replay.pk}
    assert not Redispatch.objects.filter(dispatched_at=None).exists()
    assert replay.status == "cancelled"


def test_events_that_a_paused_trigger_held_are_dropped_with_the_replay() -> None:
    make_paused_trigger()
    archived()
    replay, rules = start(), Rules()
    advance(rules)
    dispatch(rules)
    assert Decision.objects.get().outcome == "held"

    carry_out(cancel_replay(replay, by="test"))

    assert Decision.objects.get().outcome == "dropped"


def test_a_replay_that_fails_is_put_off_and_gives_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    make_trigger()
    archived()
    replay = start()

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no")

    with monkeypatch.context() as patch:
        patch.setattr("triggers.dispatch.replay_pieces.heard_by", fail)
        for _ in range(3):
            now_due(replay)
            assert advance(Rules()) == 0

    assert f"replay:{replay.pk}" in {problem.name for problem in problems(situation_now())}
    replay.refresh_from_db()
    assert progress(replay).obstacle == "RuntimeError: no"
    assert (replay.dispatched, Redispatch.objects.count()) == (0, 0)
    assert (due := read_dispatch_timers().replay) is not None and due > timedelta(seconds=0.5)
    assert carry_out(replay).failures == 0


def test_an_ended_replay_is_deleted_with_events_of_its_age() -> None:
    make_trigger()
    archived()
    carry_out(start())
    running = start()
    Replay.objects.exclude(pk=running.pk).update(ended_at=timezone.now() - timedelta(days=400))
    [step] = [step for step in prune.steps() if step.name == "replays"]

    assert remaining(step) == [running.pk]


def remaining(step: Step) -> list[UUID]:
    step.batch()
    return list(Replay.objects.values_list("pk", flat=True))


def test_a_search_is_kept_without_its_range_and_read_again() -> None:
    search = Search(source="cli", type="a.*", subject="s", fields=(FieldIs.parse('"a.b"=x'),))

    assert Search.load(search.dump()) == search
    assert Search.load({}) == Search()
    assert str(search) == 'source cli, type a.*, subject s, "a.b"=x'
    assert replace(search, source="").dump() == {"type": "a.*", "subject": "s", "fields": ['"a.b"=x']}
