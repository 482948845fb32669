"""A wait that names a source ends by that source's events alone."""

from typing import Any

import pytest

from agents import Agent, AgentRun
from agents.journal.canonical import hash_in, match_of
from agents.testing import run_agent
from tests.support.durable import Lab, lab
from tests.support.triggers import make_event
from triggers.accept import builtin_source

__all__ = ["lab"]


def paid(run: AgentRun, *, after: Any = None) -> Any:
    if after:
        run.step("meanwhile", after)
    event = run.wait_for_event("invoice.paid", match={"customer": 7}, source="schedule", timeout="7d")
    return event and event.data["number"]


def pay(slug: str, number: int) -> None:
    make_event(type="invoice.paid", data={"customer": 7, "number": number}, source_id=builtin_source(slug))


@pytest.mark.django_db(transaction=True)
def test_an_event_from_another_source_does_not_end_the_wait(lab: Lab) -> None:
    run = lab.run(paid)
    pay("cli", 1)
    assert lab.go_on(run).status == "waiting"

    pay("schedule", 2)

    assert lab.go_on(run).result == 2


@pytest.mark.django_db(transaction=True)
def test_an_event_from_another_source_that_came_before_does_not_end_the_wait(lab: Lab) -> None:
    def pay_twice() -> None:
        pay("cli", 1)
        pay("schedule", 2)

    assert lab.run(lambda run: paid(run, after=pay_twice)).result == 2


@pytest.mark.django_db(transaction=True)
def test_a_run_that_waits_is_parked_when_its_code_names_another_source(lab: Lab) -> None:
    """Otherwise an event from a source that the code no longer trusts would end the wait."""
    run = lab.run(lambda run: run.wait_for_event("invoice.paid", match={"customer": 7}))
    lab.declare(paid)
    pay("cli", 1)

    assert lab.go_on(run).status == "uncertain"
    assert "now asks for" in run.status_reason


@pytest.mark.parametrize(
    "data", [{"customer": 7}, {"customer": 7, "source": "bank"}, {"paths": 7, "source": "bank", "customer": 7}]
)
def test_the_lookup_of_a_wait_without_a_source_never_finds_one_with_a_source(data: dict[str, Any]) -> None:
    """Also not a version that takes every shape for a list of paths."""
    shape, hash = match_of({"customer": 7}, "bank")
    every_path = '["paths", "source"]'

    assert hash_in(shape, "bank", data) == hash
    assert hash_in(shape, "shop", data) is None
    assert hash_in('["customer"]', "bank", data) != hash
    assert hash_in(every_path, "bank", data) != hash


def test_a_wait_without_a_source_is_stored_as_before() -> None:
    assert match_of({"b": 1, "a": 2})[0] == '["a", "b"]'


@pytest.mark.django_db
def test_a_test_of_an_agent_answers_with_an_event_of_that_source() -> None:
    def body(run: AgentRun) -> Any:
        event = run.wait_for_event("invoice.paid", source="bank")
        return event and event.source

    async def awaited(run: Any) -> Any:
        event = await run.wait_for_event("invoice.paid", source="bank")
        return event and event.source

    for one in (body, awaited):
        agent = Agent(name="buyer", body=one, durable=True)
        assert run_agent(agent, waits={"event invoice.paid#1": {"n": 1}}).result == "bank"
