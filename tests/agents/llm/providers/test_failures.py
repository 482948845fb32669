"""Providers that are busy, broken or away: which requests are made again, when and by whom."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pydantic_ai import Agent as LlmAgent
from pytest_django import Settings

from agents.llm.providers import failures
from runs.actions.resolve import resolve
from runs.models import Attempt, Run, Step
from tests.support.durable import Lab, lab
from tests.support.examples import some_cases
from tests.support.wire import MALFORMED, WRONG_SCHEMA, Body, Call, Cut, Fault, Silent, Status, Turn, Wire

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)

FORMATS = ["openai-chat:gpt-4o", "openai-responses:gpt-4o", "anthropic:claude-sonnet-4-6"]


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the provider does not say how long to wait, it is not waited for long."""
    monkeypatch.setattr(failures, "FIRST", 0.01)


def adder(model: Any) -> LlmAgent[None, str]:
    llm = LlmAgent(model, name="sums")

    @llm.tool_plain
    def add(a: int, b: int) -> int:
        return a + b

    return llm


def run_of(lab: Lab, llm: LlmAgent[None, str], wire: Wire, **fields: Any) -> Run:
    return lab.run(lambda run: run.llm(llm, wire.prompt("sums", "one")).output, **fields)


def after_a_call(*faults: Fault) -> tuple[Any, ...]:
    """A call of a tool, and these faults before the answer."""
    return [Call("add", a=1, b=2)], Turn("3", faults=faults)


def attempts(run: Run) -> list[str]:
    return [attempt.outcome for attempt in Attempt.objects.filter(run=run).order_by("epoch")]


@pytest.mark.parametrize("model", some_cases(FORMATS))
def test_a_short_wait_that_the_provider_requests_is_waited_in_the_worker(lab: Lab, wire: Wire, model: str) -> None:
    wire.script("sums", *after_a_call(Status(429, retry_after=1), Status(503, retry_after=1)))

    run = run_of(lab, adder(model), wire)

    assert (run.status, run.result) == ("succeeded", "3")
    assert attempts(run) == ["succeeded"]
    first, second, third = [request.at for request in wire.of("one") if request.turn == 1]
    assert second - first >= 1 and third - second >= 1
    assert wire.asked("one") == {0: 1, 1: 3}


@pytest.mark.parametrize("model", FORMATS)
def test_a_long_wait_that_the_provider_requests_is_waited_without_a_worker(lab: Lab, wire: Wire, model: str) -> None:
    wire.script("sums", *after_a_call(Status(429, retry_after=60)))
    began = timezone.now()

    run = run_of(lab, adder(model), wire)

    assert (run.status, run.attempt) == ("queued", 0)
    assert run.due_at is not None
    assert timedelta(seconds=59) < run.due_at - began < timedelta(seconds=150)
    assert "429" in run.error
    assert wire.asked("one") == {0: 1, 1: 1}
    run = lab.later(run)
    assert (run.status, run.result) == ("succeeded", "3")
    assert wire.asked("one") == {0: 1, 1: 2}
    step = Step.objects.get(key="llm sums#1:request 2")
    assert (step.status, step.attempts, step.usage and step.usage["input_tokens"]) == ("done", 2, 100)


@pytest.mark.parametrize("fault", [Status(500), Status(529), Silent(), Cut()])
@pytest.mark.parametrize("model", some_cases(FORMATS))
def test_a_temporary_fault_is_requested_again_in_the_worker(lab: Lab, wire: Wire, model: str, fault: Fault) -> None:
    wire.script("sums", *after_a_call(fault, fault))

    run = run_of(lab, adder(model), wire)

    assert (run.status, run.result, attempts(run)) == ("succeeded", "3", ["succeeded"])
    assert wire.asked("one") == {0: 1, 1: 3}


@pytest.mark.parametrize("fault", [MALFORMED, WRONG_SCHEMA, Body("upstream has gone away")])
@pytest.mark.parametrize("model", some_cases(FORMATS))
def test_an_answer_that_cannot_be_read_is_requested_again(lab: Lab, wire: Wire, model: str, fault: Fault) -> None:
    wire.script("sums", *after_a_call(fault))

    run = run_of(lab, adder(model), wire, policy={"retries": 1})

    while run.status == "queued":
        run = lab.later(run)
    assert (run.status, run.result) == ("succeeded", "3")
    assert wire.asked("one") == {0: 1, 1: 2}


@pytest.mark.parametrize("model", FORMATS)
def test_an_answer_that_can_never_be_read_fails_the_run_after_some_tries(lab: Lab, wire: Wire, model: str) -> None:
    wire.script("sums", *after_a_call(*[MALFORMED] * 20))

    run = run_of(lab, adder(model), wire)
    while run.status == "queued":
        run = lab.later(run)

    assert (run.status, attempts(run)) == ("failed", ["failed", "failed", "failed"])
    assert "llm sums#1:request 2" in run.error
    assert wire.asked("one") == {0: 1, 1: 3}


@pytest.mark.parametrize(
    ("first", "second", "wait"),
    [
        (Status(429, retry_after=90), Status(429, retry_after=60), 60),
        (Status(401), Status(503, retry_after=60), 60),
    ],
)
def test_the_run_waits_for_the_model_that_is_available_first(
    lab: Lab, wire: Wire, settings: Settings, first: Status, second: Status, wait: float
) -> None:
    settings.WAKEFUL_MODEL, *settings.WAKEFUL_MODEL_FALLBACKS = FORMATS[:2]
    wire.script("sums", *after_a_call(first, second))
    began = timezone.now()

    run = run_of(lab, adder(None), wire)

    assert (run.status, wire.asked("one")) == ("queued", {0: 1, 1: 2})
    assert run.due_at is not None
    assert timedelta(seconds=wait - 1) < run.due_at - began < timedelta(seconds=wait + 29)
    run = lab.later(run)
    assert (run.status, run.result, wire.asked("one")) == ("succeeded", "3", {0: 1, 1: 3})


@pytest.mark.parametrize("status", [400, 401, 404])
@pytest.mark.parametrize("model", some_cases(FORMATS))
def test_a_request_that_is_refused_is_made_once(lab: Lab, wire: Wire, model: str, status: int) -> None:
    wire.script("sums", *after_a_call(*[Status(status)] * 20))

    run = run_of(lab, adder(model), wire, policy={"retries": 3})

    assert run.status == "failed"
    assert f"{status}" in run.error
    assert wire.asked("one") == {0: 1, 1: 1}


def test_a_provider_that_is_down_for_long_is_waited_for_without_a_worker(
    lab: Lab, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "SHORT", 0.03)  # 10 and 20 ms in the worker, then without it
    wire.script("sums", *after_a_call(*[Status(500)] * 8))

    run = run_of(lab, adder(FORMATS[0]), wire)
    while run.status == "queued":
        run = lab.later(run)

    assert (run.status, run.result) == ("succeeded", "3")
    assert wire.asked("one") == {0: 1, 1: 9}
    assert attempts(run) == [*["failed"] * 6, "succeeded"]


def test_a_provider_that_stays_down_fails_the_run(lab: Lab, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "TRIES", 4)
    wire.script("sums", *after_a_call(*[Status(500)] * 99))

    run = run_of(lab, adder(FORMATS[0]), wire)

    assert wire.asked("one") == {0: 1, 1: 4}
    run = lab.later(run)
    assert (run.status, attempts(run)) == ("failed", ["failed", "failed"])
    assert "500" in run.error
    assert wire.asked("one") == {0: 1, 1: 5}


@pytest.mark.parametrize(("settings", "requests"), [(None, 1), ({"max_retries": 1}, 2)])
def test_a_client_repeats_nothing_unless_its_author_sets_retries(
    lab: Lab, wire: Wire, settings: Any, requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client makes two retries by default: three requests for each try of ours."""
    monkeypatch.setattr(failures, "TRIES", 1)
    wire.script("sums", Turn("3", faults=[Status(500)] * 9))

    run_of(lab, LlmAgent("openai-chat:gpt-4o", name="sums", model_settings=settings), wire)

    assert wire.asked("one") == {0: requests}


def test_with_park_a_request_that_its_provider_refused_is_requested_again(lab: Lab, wire: Wire) -> None:
    wire.script("sums", *after_a_call(Status(429, retry_after=1), Status(429, retry_after=60)))
    llm = adder(FORMATS[0])

    run = lab.run(lambda run: run.llm(llm, wire.prompt("sums", "one"), llm_in_flight="park").output)

    assert (run.status, wire.asked("one")) == ("queued", {0: 1, 1: 2})
    run = lab.later(run)
    assert (run.status, run.result, wire.asked("one")) == ("succeeded", "3", {0: 1, 1: 3})


def test_with_park_a_try_that_its_provider_refused_is_no_attempt(lab: Lab, wire: Wire) -> None:
    wire.script("sums", *after_a_call(Status(429, retry_after=1)))
    llm = adder(FORMATS[0])

    run = lab.run(lambda run: run.llm(llm, wire.prompt("sums", "one"), llm_in_flight="park").output)

    assert (run.status, wire.asked("one")) == ("succeeded", {0: 1, 1: 2})
    assert set(run.steps.filter(kind="model").values_list("effect", "attempts")) == {("at_most_once", 1)}


@pytest.mark.parametrize("fault", [Silent(), Cut(), MALFORMED])
def test_with_park_a_request_whose_answer_is_lost_makes_the_run_uncertain(lab: Lab, wire: Wire, fault: Fault) -> None:
    wire.script("sums", *after_a_call(fault))
    llm = adder(FORMATS[0])

    run = lab.run(lambda run: run.llm(llm, wire.prompt("sums", "one"), llm_in_flight="park").output)

    assert (run.status, wire.asked("one")) == ("uncertain", {0: 1, 1: 1})
    assert "llm sums#1:request 2" in run.status_reason
    resolve(run.id, outcome="did_not_happen", by="ann")
    run = lab.go_on(run)
    assert (run.status, run.result, wire.asked("one")) == ("succeeded", "3", {0: 1, 1: 2})
