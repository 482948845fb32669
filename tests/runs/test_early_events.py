"""What came before a wait was there ends it, and that wait alone, whoever comes first: the look back, the dispatcher or the
timer."""

from typing import Any

import pytest
from django.db.models.functions import Now

from agents import AgentRun
from runs import waits
from runs.db.session import writing
from runs.durable import store
from runs.durable.early import find_early
from runs.models import Run, Wait, Worker
from tests.support.durable import Lab, lab
from tests.support.triggers import make_event
from triggers.models import Event

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


def twice(run: AgentRun) -> Any:
    run.step("provoke", lambda: None)
    events = [run.wait_for_event("invoice.paid", timeout="1d") for _ in range(2)]
    return [event and event.data["number"] for event in events]


def test_an_event_of_a_look_back_is_not_given_to_the_next_wait(lab: Lab) -> None:
    run = lab.run(twice)
    make_event(type="invoice.paid", data={"number": 1})
    Wait.objects.update(looked_at=None)
    execute_look_back(run)

    run = lab.go_on(run)

    assert run.status == "waiting"
    assert [(wait.key, wait.status) for wait in run.waits.order_by("position")] == [
        ("event invoice.paid#1", "done"),
        ("event invoice.paid#2", "open"),
    ]


def test_the_next_wait_gets_the_next_event_of_the_same_batch(lab: Lab) -> None:
    run = lab.run(twice)
    make_event(type="invoice.paid", data={"number": 1})
    Wait.objects.update(looked_at=None)
    execute_look_back(run)
    lab.claim_and_execute()
    Wait.objects.filter(status="open").update(looked_at=None)
    make_event(type="invoice.paid", data={"number": 2})

    run = lab.go_on(run)

    assert (run.status, run.result) == ("succeeded", [1, 2])


def execute_look_back(run: Run) -> None:
    """By a process that is quicker than the dispatcher."""
    assert waits.look_back(run.pk) == 1


def test_a_wait_does_not_expire_before_its_look_back(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def come() -> None:
        event = make_event(type="invoice.paid", data={"number": 1})
        Event.objects.filter(pk=event.pk).update(dispatched_at=Now())

    def body(run: AgentRun) -> Any:
        run.step("provoke", come)
        event = run.wait_for_event("invoice.paid", timeout=0)
        return event and event.data["number"]

    with monkeypatch.context() as held:
        held.setattr("runs.executor.look_back", lambda *_: None)  # not yet
        held.setattr("runs.durable.store.find_early", lambda *_, **__: None)
        run = lab.run(body)
    assert not waits.end_due(10).runs
    execute_look_back(run)

    run = lab.go_on(run)

    assert (run.status, run.result) == ("succeeded", 1)


def test_a_wait_for_which_nothing_came_is_over_once_that_is_known(lab: Lab) -> None:
    def body(run: AgentRun) -> Any:
        return run.wait_for_event("invoice.paid", timeout=0)

    run = lab.run(body)

    assert (run.status, run.result) == ("succeeded", None)


def come(*numbers: int) -> Any:
    def insert() -> None:
        for number in numbers:
            make_event(type="invoice.paid", data={"number": number})

    return insert


def attempts(run: Run) -> list[str]:
    return list(run.attempts.order_by("epoch").values_list("outcome", flat=True))


def test_events_that_are_there_already_end_waits_without_another_claim(lab: Lab) -> None:
    def body(run: AgentRun) -> Any:
        run.step("provoke", come(1, 2))
        run.now()
        events = [run.wait_for_event("invoice.paid", timeout="1d") for _ in range(3)]
        return [event and event.data["number"] for event in events]

    run = lab.run(body)

    # Each ends one wait, in their order; for the third the run waits.
    assert (run.status, attempts(run), run.attempt) == ("waiting", ["waiting"], 0)
    assert [wait.status for wait in run.waits.order_by("position")] == ["done", "done", "open"]
    come(3)()
    assert waits.look_back(run.pk) == 0  # it was done; the dispatcher finds the next event
    lab.look()
    run = lab.go_on(run)
    assert (run.status, run.result) == ("succeeded", [1, 2, 3])


def test_a_body_that_has_run_for_long_waits_for_an_event_that_is_there_already(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it has all of its time again."""
    monkeypatch.setattr("runs.durable.store.AT_ONCE", -1.0)

    def body(run: AgentRun) -> Any:
        run.step("provoke", come(1))
        event = run.wait_for_event("invoice.paid", timeout="1d")
        return event and event.data["number"]

    run = lab.run(body)

    assert (run.result, attempts(run)) == (1, ["waiting", "succeeded"])


def test_a_run_whose_worker_stops_keeps_a_wait_that_has_ended_at_once(lab: Lab) -> None:
    find = find_early

    def found_while_the_worker_stops(*given: Any, **named: Any) -> Any:
        with writing():
            Worker.objects.filter(pk=lab.worker.pk).update(draining_at=Now())
        return find(*given, **named)

    def body(run: AgentRun) -> Any:
        run.step("provoke", come(1))
        event = run.wait_for_event("invoice.paid", timeout="1d")
        return event and event.data["number"]

    with lab.monkeypatch.context() as stopping:
        stopping.setattr(store, "find_early", found_while_the_worker_stops)
        run = lab.run(body)

    assert (run.status, [wait.status for wait in run.waits.all()]) == ("queued", ["done"])
    Worker.objects.update(draining_at=None)
    assert lab.go_on(run).result == 1
