"""Which commits of a run wake the dispatcher at once: those that leave what is due before it looks by itself."""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents import AgentRun
from runs.db import nudge
from tests.support.durable import Lab, lab  # noqa: F401
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def just_nudged(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[None]:
    """What can wait is left for later: this process has sent a nudge a moment ago."""
    settings.WAKEFUL_NOTIFY_THROTTLE = settings.WAKEFUL_NOTIFY_THROTTLE * 0
    monkeypatch.setattr(nudge, "_last_sent", time.monotonic())
    monkeypatch.setattr(nudge, "_last_at_once", float("-inf"))
    monkeypatch.setattr(nudge, "_owed", False)
    monkeypatch.setattr(nudge, "LATER", 3600.0)
    yield
    connection.close()


def nudges_of(lab: Lab, body: Any, *, durable: bool = False, **fields: Any) -> int:  # noqa: F811
    """How many nudges the execution of such a run sends."""
    lab.declare(body, "sender", durable=durable)
    make_run(agent="sender", trigger="sender", policy={"durable": durable}, **fields)
    with CaptureQueriesContext(connection) as queries:
        assert lab.claim_and_execute()
    return sum("pg_notify" in query["sql"] for query in queries)


def test_a_success_that_leaves_nothing_due_can_wait(lab: Lab) -> None:  # noqa: F811
    assert nudges_of(lab, lambda run: None) == 0
    assert nudges_of(lab, lambda run: None, key="free", slot=1) == 0
    assert nudge._owed


def test_a_wake_that_is_due_after_the_next_look_can_wait(lab: Lab) -> None:  # noqa: F811
    later, soon = settings.WAKEFUL_SAFETY_LOOK, settings.WAKEFUL_SAFETY_LOOK / 2

    assert nudges_of(lab, lambda run: run.wake_in(later)) == 0
    assert nudges_of(lab, lambda run: run.wake_in(soon)) == 1


def test_an_emitted_event_cannot_wait(lab: Lab) -> None:  # noqa: F811
    assert nudges_of(lab, lambda run: run.emit("order.paid", {})) == 1


def test_an_event_of_a_step_does_not_wait_for_the_end_of_the_body(lab: Lab) -> None:  # noqa: F811
    sent: list[bool] = []

    def body(run: AgentRun) -> None:
        run.emit("order.paid", {})
        sent.append(any("pg_notify" in query["sql"] for query in connection.queries))

    nudges_of(lab, body, durable=True)

    assert sent == [True]


def test_a_run_that_is_let_past_cannot_wait(lab: Lab) -> None:  # noqa: F811
    make_run(agent="sender", key="busy", ready_at=None)

    assert nudges_of(lab, lambda run: None, key="busy", slot=1) == 1


def test_a_parent_cannot_wait(lab: Lab) -> None:  # noqa: F811
    assert nudges_of(lab, lambda run: None, parent_id=make_run(status="waiting").pk) == 1


def test_a_failure_that_is_tried_again_cannot_wait(lab: Lab) -> None:  # noqa: F811
    def body(run: AgentRun) -> None:
        raise ValueError

    assert nudges_of(lab, body) == 1


def payloads(send: Any) -> list[str]:
    """Those of the NOTIFYs that this sends."""
    sent: list[str] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        sent.extend(params[1:] if "pg_notify" in sql else [])
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        send()
    return sent


def test_one_nudge_per_throttle_is_sent(settings: Any) -> None:
    settings.WAKEFUL_NOTIFY_THROTTLE = timedelta(hours=1)

    assert payloads(nudge.nudge_dispatcher) == [nudge.AT_ONCE]
    assert payloads(nudge.nudge_dispatcher) == []
    nudge.nudge_later()
    assert payloads(nudge.flush) == []


def test_one_that_can_wait_holds_up_none_that_cannot(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.WAKEFUL_NOTIFY_THROTTLE = timedelta(hours=1)
    monkeypatch.setattr(nudge, "_last_sent", float("-inf"))

    assert payloads(nudge.nudge_later) == [nudge.CAN_WAIT]
    assert payloads(nudge.nudge_dispatcher) == [nudge.AT_ONCE]


def test_after_one_that_was_not_sent_the_next_one_is(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.WAKEFUL_NOTIFY_THROTTLE = timedelta(hours=1)
    with monkeypatch.context() as broken:
        broken.setattr(nudge, "NOTIFY", "SELECT nothing, %s, %s")
        nudge.nudge_dispatcher()

    assert payloads(nudge.nudge_dispatcher) == [nudge.AT_ONCE]
