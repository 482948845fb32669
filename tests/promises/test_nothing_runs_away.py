"""Runs have a deadline and can be cancelled, causal chains have a depth, loops a rate, the backlog a limit."""

from typing import Any

import pytest

from runs.actions.cancel import cancel
from runs.models import Run
from tests.integration.protocol import effects, emit, in_status, outcomes, run_of, shop_stack
from tests.support.durable import Lab, lab
from tests.support.hooks import make_source, post, signed_headers
from tests.support.stack import Stack, StackMaker, eventually
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.models import Decision, Event
from triggers.sources import backlog

__all__ = ["lab"]


@pytest.fixture(scope="module")
def served(make_shared_stack: StackMaker) -> Stack:
    """A dispatcher and a worker that survive what these tests do to its children."""
    stack = shop_stack(make_shared_stack)
    stack.start("worker", concurrency=2)
    return stack


def test_a_body_past_its_timeout_fails_the_run(served: Stack) -> None:
    stack = served
    stack.query("UPDATE triggers_trigger SET policy = policy || '{\"timeout\": 1}' WHERE slug = 'sleeper'")
    event = emit(stack, "sleep.a", "slow", key="slow", seconds=20)

    run = in_status(stack, event, "failed")
    stack.query("UPDATE triggers_trigger SET policy = policy - 'timeout' WHERE slug = 'sleeper'")

    assert outcomes(stack, run) == ["deadline"]
    assert effects(stack, event) == 0


def test_a_body_that_will_not_stop_is_killed_and_its_child_replaced(served: Stack) -> None:
    stack = served
    worker = stack.processes[-1]
    children = len(worker.children())
    event = emit(stack, "stubborn.a", "stubborn", seconds=60)
    killed = in_status(stack, event, "running")["pid"]

    run = in_status(stack, event, "failed")

    assert outcomes(stack, run) == ["deadline"]
    # The killed one is a child until it is reaped.
    eventually(lambda: killed not in {child.pid for child in worker.children()})
    eventually(lambda: len(worker.children()) == children)
    assert in_status(stack, emit(stack, "effect.a", "after stubborn"), "succeeded")


def test_a_running_run_is_cancelled_and_its_key_freed(served: Stack) -> None:
    stack = served
    first = emit(stack, "sleep.a", "cancelled", key="cancelled", seconds=25)
    run = in_status(stack, first, "running")
    second = emit(stack, "sleep.a", "after cancelled", key="cancelled", seconds=0)
    assert run_of(stack, second)["ready_at"] is None

    with stack.orm():
        cancel(run["id"], by="test")

    run = in_status(stack, first, "cancelled")
    assert outcomes(stack, run) == ["cancelled"]
    in_status(stack, second, "succeeded")
    assert effects(stack, first) == 0


@pytest.mark.django_db
def test_a_chain_that_is_too_deep_ends_with_a_decision(settings: Any) -> None:
    make_trigger()
    make_event(depth=settings.WAKEFUL_MAX_DEPTH + 1)

    dispatch(Rules())

    assert not Run.objects.exists()
    assert Decision.objects.get().outcome == "loop"


@pytest.mark.django_db
def test_a_backlog_is_503_with_a_time_to_come_back(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    make_source()
    settings.WAKEFUL_MAX_BACKLOG = 1
    for number in range(2):
        assert post(b"{}", signed_headers(b"{}", id_=f"d-{number}")).status_code == 202
    monkeypatch.setattr(backlog, "_backlog", backlog.NEVER)

    answer = post(b"{}", signed_headers(b"{}", id_="d-9"))

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert Event.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_two_agents_that_wake_each_other_are_stopped_by_the_rate_and_seen(lab: Lab, settings: Any) -> None:
    settings.WAKEFUL_LOOP_RATE, settings.WAKEFUL_MAX_DEPTH = "2/1m", 100
    for name, answer in (("ping", "pong"), ("pong", "ping")):
        make_trigger(name, types=[name])
        lab.declare(lambda run, answer=answer: run.emit(answer), name, durable=False)

    run = lab.run(lambda run: run.emit("ping"))

    assert run.status == "succeeded"
    assert Run.objects.filter(trigger__in=["ping", "pong"]).count() == 6
    assert "ping → pong → ping" in Decision.objects.get(outcome="loop").reason
