"""What a person decides about a call of a tool: it is bound to the arguments, validated, and used once; loops end all the same."""

from typing import Any

import pytest
from pydantic_ai import Agent as LlmAgent

from agents.agent import Agent
from agents.journal.protocol import Answer
from agents.testing import Crashed, Journal, run_agent
from runs.actions.approve import Choice, decide
from runs.models import Approval
from tests.support.durable import Lab, lab
from tests.support.llm import Turns

__all__ = ["lab"]
pytestmark = pytest.mark.django_db(transaction=True)

FIRST, SECOND = "approval:llm payer#1: pay call-0-0", "approval:llm payer#1: pay call-1-0"


def payer(*turns: Any) -> tuple[Agent, list[int]]:
    script, paid = Turns(*turns), []
    llm = LlmAgent(script.model, name="payer")

    @llm.tool_plain(metadata={"dangerous": True})
    def pay(cents: int) -> str:
        paid.append(cents)
        return "ok"

    return Agent(name="clerk", body=lambda run: run.llm(llm, "Pay?", untrusted="x").output, durable=True), paid


def test_edited_arguments_are_validated_like_the_models_own() -> None:
    agent, paid = payer([("pay", {"cents": 1})], [("pay", {"cents": 2})], "done")
    wrong = Answer(decision="edited", arguments={"cents": "a lot"})

    done = run_agent(agent, waits={FIRST: wrong, SECOND: "approved"})

    assert (done.result, paid) == ("done", [2])  # the model was told, and its next call asked for approval again


def test_each_call_is_asked_about_with_its_own_arguments() -> None:
    agent, paid = payer([("pay", {"cents": 1})], [("pay", {"cents": 1})], "done")

    run_agent(agent, waits={FIRST: "approved", SECOND: "denied"})

    assert paid == [1]


def test_the_same_result_three_times_ends_the_run_across_approvals_and_crashes() -> None:
    agent, paid = payer(*[[("pay", {"cents": 1})]] * 9)
    journal = Journal()
    waits = {f"approval:llm payer#1: pay call-{number}-0": "approved" for number in range(9)}
    with pytest.raises(Crashed):
        run_agent(agent, journal=journal, waits=waits, crash_after="llm payer#1:pay call-1-0")

    with pytest.raises(Exception, match="goes round in circles"):
        run_agent(agent, journal=journal, waits=waits)
    assert paid == [1, 1, 1]


def test_a_call_made_before_the_run_was_tainted_is_not_asked_about_on_a_replay() -> None:
    script, paid = Turns([("pay", {"cents": 1})], "done"), []
    llm = LlmAgent(script.model, name="payer")

    @llm.tool_plain(metadata={"dangerous": True})
    def pay(cents: int) -> str:
        paid.append(cents)
        return "ok"

    def body(run: Any) -> Any:
        answer = run.llm(llm, "Pay.").output
        run.step("taint", run.taint)
        run.step("after", lambda: None)
        return answer

    agent, journal = Agent(name="clerk", body=body, durable=True), Journal()
    with pytest.raises(Crashed):
        run_agent(agent, journal=journal, crash_after="taint")
    journal.run["is_tainted"] = True

    assert run_agent(agent, journal=journal).result == "done"
    assert paid == [1]


@pytest.mark.parametrize(
    ("decision", "arguments", "expected"), [("deny", None, []), ("edit", {"cents": 1}, [1]), ("approve", None, [500])]
)
@pytest.mark.parametrize("metadata", [{}, {"dangerous": False}])
def test_a_decision_counts_although_the_tool_is_no_longer_dangerous(
    lab: Lab, metadata: dict[str, Any], decision: Choice, arguments: Any, expected: list[int]
) -> None:
    paid: list[int] = []

    def declared(metadata: dict[str, Any]) -> LlmAgent:
        llm = LlmAgent(Turns([("pay", {"cents": 500})], "done").model, name="payer")

        @llm.tool_plain(metadata=metadata)
        def pay(cents: int) -> str:
            paid.append(cents)
            return "ok"

        return llm

    before, after = declared({"dangerous": True}), declared(metadata)
    run = lab.run(lambda run: run.llm(before, "Pay?", untrusted="x").output)
    lab.declare(lambda run: run.llm(after, "Pay?", untrusted="x").output)
    decide(Approval.objects.get(wait__run=run).pk, decision=decision, by="ann", arguments=arguments)
    run = lab.go_on(run)

    assert (run.status, paid) == ("succeeded", expected)


def test_a_tool_that_is_no_longer_dangerous_does_not_ask_about_its_next_call(lab: Lab) -> None:
    paid: list[int] = []

    def declared(metadata: dict[str, Any]) -> LlmAgent:
        llm = LlmAgent(Turns([("pay", {"cents": 1})], [("pay", {"cents": 2})], "done").model, name="payer")

        @llm.tool_plain(metadata=metadata)
        def pay(cents: int) -> str:
            paid.append(cents)
            return "ok"

        return llm

    before, after = declared({"dangerous": True}), declared({})
    run = lab.run(lambda run: run.llm(before, "Pay?", untrusted="x").output)
    lab.declare(lambda run: run.llm(after, "Pay?", untrusted="x").output)
    decide(Approval.objects.get(wait__run=run).pk, decision="deny", by="ann")
    run = lab.go_on(run)

    assert (run.status, paid, Approval.objects.count()) == ("succeeded", [2], 1)
