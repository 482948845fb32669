"""A person resolves a request to a model, or a call of a tool, whose outcome is unknown."""

from typing import Any

import pytest
from pydantic_ai import Agent as LlmAgent

from runs.actions.fork import fork
from runs.actions.resolve import resolve
from runs.models import Run
from tests.support.durable import Lab, lab
from tests.support.wire import Call, Silent, Turn, Wire

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)

MODEL = "openai-chat:gpt-4o"


def with_a_lost_answer(lab: Lab, wire: Wire) -> Run:
    wire.script("hello", Turn("hello", faults=[Silent()]), "and again")
    llm = LlmAgent(MODEL, name="greeter")
    run = lab.run(lambda run: run.llm(llm, wire.prompt("hello", "one"), llm_in_flight="park").output)
    assert (run.status, wire.asked("one")) == ("uncertain", {0: 1})
    return run


def with_a_lost_call(lab: Lab, wire: Wire, called: list[int]) -> Run:
    wire.script("pay", [Call("pay", cents=5)], "paid")
    llm = LlmAgent(MODEL, name="payer")

    @llm.tool_plain(metadata={"effect": "at_most_once", "trusted": True})
    def pay(cents: int) -> Any:
        called.append(cents)
        if len(called) == 1:
            raise ConnectionError("no answer")
        return {"receipt": 8}

    run = lab.run(lambda run: run.llm(llm, wire.prompt("pay", "one")).output)
    assert (run.status, called) == ("uncertain", [5])
    return run


def test_a_request_that_did_not_happen_is_made_again(lab: Lab, wire: Wire) -> None:
    run = with_a_lost_answer(lab, wire)

    resolve(run.id, outcome="did_not_happen", by="ann")
    run = lab.go_on(run)

    assert (run.status, run.result, wire.asked("one")) == ("succeeded", "hello", {0: 2})


def test_the_answer_of_a_request_that_happened_is_a_text(lab: Lab, wire: Wire) -> None:
    run = with_a_lost_answer(lab, wire)

    with pytest.raises(ValueError, match="the text of its answer"):
        resolve(run.id, outcome="happened", by="ann")
    with pytest.raises(ValueError, match="the text of its answer"):
        resolve(run.id, outcome="happened", result={"text": "hello"}, by="ann")
    run.refresh_from_db()
    assert run.status == "uncertain"
    resolve(run.id, outcome="happened", result="hello from Ann", by="ann")
    run = lab.go_on(run)

    assert (run.status, run.result, wire.asked("one")) == ("succeeded", "hello from Ann", {0: 1})


@pytest.mark.parametrize(("result", "text"), [({"receipt": 7}, '{"receipt":7}'), ("ok", "ok"), (None, "")])
def test_the_result_of_a_call_that_happened_is_what_its_tool_returns(
    lab: Lab, wire: Wire, result: Any, text: str
) -> None:
    called: list[int] = []
    run = with_a_lost_call(lab, wire, called)

    resolve(run.id, outcome="happened", result=result, by="ann")
    run = lab.go_on(run)

    assert (run.status, run.result, called) == ("succeeded", "paid", [5])
    [result_message] = [message for message in wire.of("one")[1].body["messages"] if message["role"] == "tool"]
    assert result_message["content"] == text


def test_a_call_that_did_not_happen_is_made_again(lab: Lab, wire: Wire) -> None:
    called: list[int] = []
    run = with_a_lost_call(lab, wire, called)

    resolve(run.id, outcome="did_not_happen", by="ann")
    run = lab.go_on(run)

    assert (run.status, run.result, called) == ("succeeded", "paid", [5, 5])
    assert wire.asked("one") == {0: 1, 1: 1}


def test_a_fork_before_a_request_makes_it_and_what_follows_again_and_nothing_else(lab: Lab, wire: Wire) -> None:
    wire.script("sums", [Call("add", a=1)], [Call("add", a=2)], "3")
    llm, added = LlmAgent(MODEL, name="sums"), []

    @llm.tool_plain
    def add(a: int) -> int:
        added.append(a)
        return a

    run = lab.run(lambda run: run.llm(llm, wire.prompt("sums", "one")).output)
    assert (run.status, wire.asked("one"), added) == ("succeeded", {0: 1, 1: 1, 2: 1}, [1, 2])

    forked = lab.go_on(fork(run.id, by="ann", step="llm sums#1:request 2"))

    assert (forked.status, forked.result) == ("succeeded", "3")
    assert (wire.asked("one"), added) == ({0: 1, 1: 2, 2: 2}, [1, 2, 2])
