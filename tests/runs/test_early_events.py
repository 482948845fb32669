"""What came before a wait was there ends it, and that wait alone, whoever comes first: the look back, the dispatcher or the
timer."""

from typing import Any

import pytest
from django.db.models.functions import Now

from agents import AgentRun
from runs import waits
from runs.models import Run, Wait
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
        run = lab.run(body)
    assert not waits.end_due(10)
    execute_look_back(run)

    run = lab.go_on(run)

    assert (run.status, run.result) == ("succeeded", 1)


def test_a_wait_for_which_nothing_came_is_over_once_that_is_known(lab: Lab) -> None:
    def body(run: AgentRun) -> Any:
        return run.wait_for_event("invoice.paid", timeout=0)

    run = lab.run(body)

    assert (run.status, run.result) == ("succeeded", None)
