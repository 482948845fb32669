"""Promises of docs/durability.md that no other test shows."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest
from django.db import connection

from agents import AgentRun
from agents.models import AgentState
from runs.actions.requeue import requeue
from runs.db.session import writing
from runs.db.sql import fetch
from runs.models import Attempt, Run, Step
from runs.states import RunStatus
from runs.transitions.leave import take_away
from runs.transitions.outcome import Outcome, ticket_of
from tests.support.durable import Lab, lab

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_network_is_not_refused_outside_of_steps_and_is_used_again_on_each_replay(lab: Lab) -> None:
    calls: list[int] = []
    with listening() as port:

        def body(run: AgentRun) -> None:
            socket.create_connection(("127.0.0.1", port)).close()
            calls.append(port)
            run.sleep("1d")

        run = lab.later(lab.run(body))

    assert (run.status, calls) == ("succeeded", [port, port])


def test_state_conflicts_if_read_in_the_body_and_not_if_read_and_set_in_one_step(
    lab: Lab,
) -> None:
    def in_the_body(run: AgentRun) -> None:
        seen = run.state.get("count", 0)
        run.sleep("1d")
        run.state.set("count", seen + 1)

    def in_one_step(run: AgentRun) -> None:
        run.sleep("1d")
        run.step("count", lambda: run.state.set("count", run.state.get("count", 0) + 1))

    for body, status in [(in_the_body, "failed"), (in_one_step, "succeeded")]:
        run = lab.run(body, policy={"retries": 1})
        AgentState.objects.update_or_create(agent="durable", name="count", defaults={"value": 5, "revision": 7})
        run = lab.later(lab.later(run))
        assert run.status == status
        assert ("StateConflict" in run.error) == (status == "failed")

    assert AgentState.objects.get().value == 6


def test_a_late_answer_is_recorded_and_the_parked_run_goes_on(lab: Lab) -> None:
    calls: list[str] = []

    def charge(run: AgentRun) -> str:
        calls.append(run.idempotency_key)
        in_another_session(lambda: park(run))
        return "ch_1"

    run = lab.run(lambda run: run.step("charge", charge, run, effect="at_most_once"))

    assert (run.status, run.result, len(calls)) == ("succeeded", "ch_1", 1)
    assert [attempt.outcome for attempt in Attempt.objects.order_by("epoch")] == ["uncertain", "succeeded"]


def test_a_recorded_step_keeps_its_output_after_a_change_of_its_code(lab: Lab) -> None:
    def body_of(rate: int) -> Any:
        def body(run: AgentRun) -> Any:
            price = run.step("price", lambda: 100 * rate)
            run.sleep("1d")
            return [price, rate]

        return body

    run = lab.run(body_of(1))
    lab.declare(body_of(2))

    assert lab.later(run).result == [100, 2]


def test_a_run_past_its_timeout_fails_and_goes_on_from_its_journal_once_it_is_requeued(lab: Lab) -> None:
    calls: list[str] = []
    slow = [True]

    def body(run: AgentRun) -> str:
        run.step("one", lambda: calls.append("one"))
        if slow:
            time.sleep(5)
        return "done"

    run = lab.run(body, policy={"timeout": 0.5, "retries": 3})
    assert (run.status, run.status_reason) == ("failed", "deadline")
    slow.clear()
    requeue(run.id, by="test")

    assert (lab.go_on(run).status, calls) == ("succeeded", ["one"])


def test_a_step_in_a_thread_of_its_own_has_a_session_of_its_own_that_ends_with_it(lab: Lab) -> None:
    sessions: list[int] = []

    def work(run: AgentRun) -> None:
        run.step("work", lambda: sessions.append(session()), key="1")

    def body(run: AgentRun) -> None:
        thread = Thread(target=work, args=[run])
        thread.start()
        thread.join()
        run.step("here", lambda: sessions.append(session()))

    lab.run(body)

    in_thread, here = sessions
    assert in_thread != here == session()
    assert not fetch("SELECT 1 FROM pg_stat_activity WHERE pid = %s::int", [in_thread])


def test_arguments_of_a_step_are_kept_only_where_a_person_may_have_to_know_them(lab: Lab) -> None:
    def body(run: AgentRun) -> None:
        run.step("plain", lambda secret: None, "s3cret")
        run.step("send", lambda cents: None, 100, effect="at_most_once")

    lab.run(body)

    assert [step.arguments for step in Step.objects.order_by("position")] == [None, [100]]


def session() -> int:
    return int(fetch("SELECT pg_backend_pid()")[0][0])


def park(run: AgentRun) -> None:
    """As a successor does that meets a step which was begun and never ended."""
    with writing():
        row = Run.objects.get(pk=run.id)
        take_away(
            ticket_of(row),
            Outcome(status=RunStatus.UNCERTAIN, attempt=Attempt.Outcome.UNCERTAIN, reason="nobody knows"),
            expected=RunStatus.RUNNING,
        )


def in_another_session(act: Callable[[], None]) -> None:
    def acted() -> None:
        act()
        connection.close()

    thread = Thread(target=acted)
    thread.start()
    thread.join()


@contextmanager
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0), backlog=10) as server:
        yield server.getsockname()[1]
