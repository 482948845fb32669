"""A short sleep is over sooner than another process could take over: the run keeps its own."""

import time
from datetime import timedelta
from typing import Any

import pytest

from agents import AgentRun
from runs.durable.store import SHORT
from runs.models import Run
from runs.ports import ports
from tests.support.durable import Lab, lab

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


def sleeps(*durations: timedelta) -> Any:
    def body(run: AgentRun) -> None:
        for duration in durations:
            run.sleep(duration)

    return body


def attempts(run: Run) -> list[str]:
    return list(run.attempts.order_by("epoch").values_list("outcome", flat=True))


def test_short_sleeps_need_no_further_claim_and_are_kept_in_the_journal(lab: Lab) -> None:
    began = time.monotonic()

    run = lab.run(sleeps(SHORT, SHORT))

    assert time.monotonic() - began >= 2 * SHORT.total_seconds()
    assert (run.status, attempts(run)) == ("succeeded", ["succeeded"])
    waits = list(run.waits.order_by("position"))
    assert [(wait.key, wait.kind, wait.status) for wait in waits] == [
        ("sleep#1", "time", "done"),
        ("sleep#2", "time", "done"),
    ]
    assert all(wait.due_at and wait.ended_at and wait.due_at <= wait.ended_at for wait in waits)


def test_a_short_sleep_is_not_repeated_by_a_replay(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("runs.durable.store.time", Clock(slept))

    def body(run: AgentRun) -> None:
        run.sleep(SHORT)
        run.sleep("1h")

    run = lab.run(body)
    assert (run.status, attempts(run)) == ("waiting", ["waiting"])
    assert lab.later(run).status == "succeeded"

    assert slept == [SHORT.total_seconds()]


class Clock:
    """The module `time`, in which no time passes."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self, slept: list[float]) -> None:
        self.sleep = slept.append


@pytest.mark.parametrize("duration", [timedelta(), SHORT + timedelta(milliseconds=1)])
def test_other_sleeps_release_the_process(lab: Lab, duration: timedelta) -> None:
    """Zero among them: it lets other runs go first."""
    run = lab.run(sleeps(duration))
    while run.status == "waiting":
        run = lab.go_on(run)

    assert attempts(run) == ["waiting", "succeeded"]


def test_a_body_that_has_run_for_long_releases_its_process(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.durable.store.AT_ONCE", -1.0)

    run = lab.run(sleeps(SHORT))
    while run.status == "waiting":
        run = lab.go_on(run)

    assert attempts(run) == ["waiting", "succeeded"]


def test_a_sleep_that_begins_a_new_causal_chain_is_a_wait_however_short(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "loop_spacing", lambda: SHORT)

    run = lab.run(sleeps(SHORT), depth=3)
    while run.status == "waiting":
        run = lab.go_on(run)

    assert (attempts(run), run.depth) == (["waiting", "succeeded"], 0)
