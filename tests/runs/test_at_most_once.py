"""What may happen at most once, where something else happens at the same time."""

import contextlib

import pytest
from django.db.models.functions import Now

from agents import AgentRun, Retry
from runs.models import Step, Worker
from runs.session import writing
from tests.runs.durable import Lab, lab
from tests.runs.test_durability_claims import in_another_session
from tests.runs.test_durable_sessions import end_session

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_body_does_not_go_on_past_an_intent_that_could_not_be_taken_back(lab: Lab) -> None:
    def refuse() -> None:
        end_session()
        raise Retry("not now")

    def body(run: AgentRun) -> str:
        with contextlib.suppress(Exception):
            run.step("pay", refuse, effect="at_most_once")
        return "went on"

    run = lab.later(lab.run(body, policy={"retries": 1}))

    assert (run.status, Step.objects.get().status) == ("uncertain", "started")


def test_a_worker_that_stops_before_the_call_leaves_nobody_in_doubt(lab: Lab) -> None:
    calls: list[str] = []

    def body(run: AgentRun) -> None:
        in_another_session(stop_worker)
        run.step("pay", lambda: calls.append("pay"), effect="at_most_once")

    def stop_worker() -> None:
        with writing():
            Worker.objects.update(draining_at=Now())

    run = lab.run(body)
    assert (run.status, calls, Step.objects.count()) == ("queued", [], 0)

    Worker.objects.update(draining_at=None)
    lab.declare(lambda run: run.step("pay", lambda: calls.append("pay"), effect="at_most_once"))
    assert (lab.go_on(run).status, calls) == ("succeeded", ["pay"])
