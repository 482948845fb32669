"""From an event to a run, or to the reason why there is none."""

from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from runs.actions.event_runs import runs_of_event
from runs.models import NIL, Run
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.models import Decision, Event, Trigger
from triggers.replays.replay import replay
from triggers.sources.manual import fire

pytestmark = pytest.mark.django_db


def dispatch_all() -> int:
    return dispatch(Rules()).dispatched


def runs_of(*events: Event) -> list[Run]:
    return [run for event in events for run in runs_of_event(event.id)]


def test_a_matching_event_starts_one_run() -> None:
    trigger = make_trigger(policy={"queue": "urgent", "priority": 1})
    event = make_event(data={"name": "Ada"})

    assert dispatch_all() == 1

    [run] = runs_of(event)
    assert (run.status, run.trigger, run.agent, run.queue, run.priority) == (
        "queued",
        "greeter",
        "greeter",
        "urgent",
        1,
    )
    assert run.ready_at is not None
    assert (run.trigger_id, run.event_ids, run.root_id) == (trigger.id, [event.id], event.id)


def test_an_event_without_matching_triggers_is_dispatched() -> None:
    make_trigger(types=["invoice.*"])
    event = make_event()

    assert dispatch_all() == 1

    assert not runs_of(event)
    assert not Decision.objects.exists()


@pytest.mark.parametrize(
    ("filter", "wanted"),
    [("event.data.amount > 100", True), ("event.data.amount > 1000", False), ("event.source == 'cli'", True)],
)
def test_a_filter_decides_whether_an_event_becomes_a_run(filter: str, wanted: bool) -> None:
    make_trigger(filter=filter)
    event = make_event(data={"amount": 500})

    dispatch_all()

    assert bool(runs_of(event)) is wanted
    assert not Decision.objects.exists()


def test_an_input_mapping_becomes_the_runs_input() -> None:
    make_trigger(input={"who": "event.data.name", "shout": "event.data.name + '!'"})
    event = make_event(data={"name": "Ada"})

    dispatch_all()

    assert runs_of(event)[0].input == {"who": "Ada", "shout": "Ada!"}


def test_an_event_that_the_database_refuses_gets_a_decision() -> None:
    make_trigger(input={"ratio": "event.data.a / event.data.b"})
    bad, good = make_event(data={"a": 0.0, "b": 0.0}), make_event(data={"a": 1.0, "b": 2.0})

    dispatch_all()

    assert not runs_of(bad)
    assert Decision.objects.get().event_id == bad.id
    assert runs_of(good)[0].input == {"ratio": 0.5}


def test_a_manual_fire_reaches_its_trigger_alone_and_skips_the_filter() -> None:
    trigger = make_trigger(filter="event.data.amount > 100")
    make_trigger("other", types=["*"])

    event_id = fire(trigger, by="cli:ada")
    dispatch_all()

    assert [run.trigger for run in runs_of_event(event_id)] == ["greeter"]


def test_a_disabled_trigger_matches_nothing() -> None:
    make_trigger(enabled=False)
    event = make_event()

    dispatch_all()

    assert not runs_of(event)
    assert not Decision.objects.exists()


@pytest.mark.parametrize(
    "policy", [{"timeout": "soon"}, {"retries": -1}, {"priority": 10}, {"queue": ""}, {"retries": True}]
)
def test_a_policy_that_makes_no_sense_is_a_decision(policy: dict[str, Any]) -> None:
    make_trigger(policy=policy)
    event = make_event()

    dispatch_all()

    assert not runs_of(event)
    assert next(iter(policy)) in Decision.objects.get().reason


def test_an_event_meant_for_a_trigger_disabled_since_is_a_decision() -> None:
    trigger = make_trigger()
    event_id = fire(trigger, by="cli:ada")
    Trigger.objects.update(enabled=False)

    dispatch_all()

    assert Decision.objects.get().outcome == "disabled"
    assert not runs_of_event(event_id)


@pytest.mark.django_db(transaction=True)
def test_an_edit_by_plain_sql_counts_for_the_next_batch() -> None:
    rules = Rules()
    make_trigger(types=["invoice.*"])
    dispatch(rules)

    with connection.cursor() as cursor:
        cursor.execute("UPDATE triggers_trigger SET types = ARRAY['visitor.*']")
    event = make_event()
    dispatch(rules)

    assert len(runs_of(event)) == 1


# Overlap


def test_queue_blocks_behind_the_key_in_order() -> None:
    make_trigger(overlap="queue", key="event.data.customer")
    events = [make_event(data={"customer": name}) for name in ("a", "a", "b", "a")]

    dispatch_all()

    ready = [run.ready_at is not None for run in runs_of(*events)]
    assert ready == [True, False, True, False]
    assert [run.slot for run in runs_of(*events)] == [1, None, 1, None]


def test_a_key_that_is_no_scalar_is_a_decision() -> None:
    make_trigger(overlap="queue", key="event.data")
    make_event(data={"a": 1})

    dispatch_all()

    assert "a key must be a string, a number or a boolean" in Decision.objects.get().reason


# Pause and replay


def test_a_replayed_event_starts_a_run_of_its_own() -> None:
    make_trigger()
    event = make_event()
    dispatch_all()

    replay_id = replay(event, by="cli:ada")
    dispatch_all()

    assert {run.replay_id for run in runs_of(event)} == {UUID(NIL), replay_id}


def test_a_replay_to_one_trigger_reaches_no_other() -> None:
    chosen = make_trigger()
    make_trigger("other", types=["visitor.*"])
    event = make_event()
    dispatch_all()
    Run.objects.all().delete()

    replay(event, trigger=chosen, by="cli:ada")
    dispatch_all()

    assert [run.trigger for run in runs_of(event)] == ["greeter"]


# Claim order
