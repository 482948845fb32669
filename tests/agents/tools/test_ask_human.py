"""The tool ask_human: the run waits, and the model gets a person's answer."""

from typing import Any

import pytest
from pydantic_ai import Agent as LlmAgent

from agents.journal.protocol import Answer
from agents.run import AgentRun
from agents.testing import Unanswered
from agents.tools import toolbox
from runs.actions.approve import decide
from runs.durable.transcript import ToolCall, transcript_of
from runs.models import Approval, Run
from tests.support.durable import Lab, lab
from tests.support.llm import Turns
from tests.support.tools import call

__all__ = ["lab"]
pytestmark = pytest.mark.django_db(transaction=True)

KEY = "approval:llm asker#1: ask_human call-0-0 answer"
ASKED = {"question": "Which region?"}


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (Answer(decision="edited", arguments={**ASKED, "answer": "eu-west"}), "eu-west"),
        (Answer(decision="approved", arguments={**ASKED, "answer": ""}), "yes"),
        (Answer(decision="approved", reason="the cheaper one"), "yes: the cheaper one"),
        (Answer(decision="denied", reason="not before Monday"), "no: not before Monday"),
        (Answer(decision="expired"), "No person has answered in time."),
    ],
)
def test_the_model_gets_the_answer(answer: Answer, result: str) -> None:
    assert call("ask_human", ASKED, waits={KEY: answer}).results == [result]


def test_the_run_waits_until_the_question_is_answered() -> None:
    with pytest.raises(Unanswered, match="Which region"):
        call("ask_human", ASKED)


def ask(run: AgentRun) -> Any:
    llm = LlmAgent(Turns([("ask_human", ASKED)], "done").model, name="asker", tools=[toolbox.get("ask_human")])
    messages = run.llm(llm, "Go.", deps=run).all_messages()
    return [str(getattr(part, "content", "")) for message in messages for part in message.parts]


def test_a_person_answers_a_run_that_is_parked(lab: Lab) -> None:
    run = lab.run(ask)
    assert run.status == "waiting"
    approval = Approval.objects.get(wait__run=run)
    assert (approval.question, approval.arguments) == ("Which region?", {**ASKED, "answer": ""})
    assert [call.status for call in tool_calls(run)] == ["open"]
    decide(approval.pk, decision="edit", by="ann", arguments={**ASKED, "answer": "eu-west"})

    run = lab.go_on(run)

    assert run.status == "succeeded"
    assert "eu-west" in str(run.result)
    [shown] = tool_calls(run)
    assert (shown.status, shown.result, shown.approval) == ("done", "eu-west", approval.pk)


def test_without_keep_content_the_question_and_the_answer_are_removed(lab: Lab) -> None:
    run = lab.run(ask, declared={"keep_content": False}, policy={"keep_content": False})
    decide(Approval.objects.get(wait__run=run).pk, decision="approve", by="ann", reason="the cheaper one")

    assert lab.go_on(run).status == "succeeded"

    left = Approval.objects.get(wait__run=run)
    assert (left.question, left.arguments, left.reason, left.decided_by) == ("", None, "", "ann")


def tool_calls(run: Run) -> list[ToolCall]:
    return [call for one in transcript_of(run).calls for turn in one.turns for call in turn.tool_calls]
