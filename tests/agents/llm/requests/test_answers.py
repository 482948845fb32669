"""An answer of a model is recorded and used, also where it has characters that cannot be stored."""

import json
from typing import Any

import pytest
from pydantic_ai import Agent as LlmAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart

from agents.agent import Agent
from agents.llm.requests.answers import recordable
from agents.testing import run_agent
from runs.actions.approve import decide
from runs.durable.transcript import transcript_of
from runs.models import Approval
from tests.support.durable import Lab, lab
from tests.support.llm import Turns

__all__ = ["lab"]
pytestmark = pytest.mark.django_db(transaction=True)

SMILE = "\U0001f600"


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b"])
def test_characters_that_cannot_be_stored_are_replaced(text: str) -> None:
    given: list[str] = []
    calls = [("note", json.dumps({"text": text})), ("note", json.dumps({"text": text, "more": SMILE}))]
    llm = LlmAgent(Turns(calls, (text, text)).model, name="clerk")

    @llm.tool_plain
    def note(text: str, more: str = "") -> str:
        given.append(text + more)
        return "noted"

    done = run_agent(Agent(name="clerk", body=lambda run: run.llm(llm, "go").output, durable=True))

    assert done.result == "a\ufffdb"
    assert sorted(given) == ["a\ufffdb", f"a\ufffdb{SMILE}"]


def test_characters_that_cannot_be_stored_are_replaced_in_tool_names_and_argument_objects_too() -> None:
    part = {"part_kind": "tool-call", "tool_name": "a\x00", "args": {"b\ud800": ["c\x00", 1]}}

    cleaned = {"part_kind": "tool-call", "tool_name": "a\ufffd", "args": {"b\ufffd": ["c\ufffd", 1]}}
    assert recordable({"parts": [part]}) == {"parts": [cleaned]}


@pytest.mark.parametrize(
    "text",
    ['{"a": "\\ud83d\\ude00"}', '{"a": "\\\\u0000"}', '{"a": "\\u0000', '{"a": NaN}', "[" * 99_999 + '"\\u0000"'],
)
def test_argument_texts_without_replaceable_characters_stay_as_they_are(text: str) -> None:
    part = {"part_kind": "tool-call", "args": text}

    assert recordable({"parts": [part]}) == {"parts": [part]}


@pytest.mark.parametrize("is_dangerous", [False, True])
def test_a_run_survives_any_character_of_its_model(lab: Lab, is_dangerous: bool) -> None:
    llm = LlmAgent(Turns([("note", '{"text": "a\\u0000b\\ud800"}')], "done\x00").model, name="clerk")

    @llm.tool_plain(metadata={"dangerous": is_dangerous})
    def note(text: str) -> str:
        return text

    run = lab.run(lambda run: run.llm(llm, "go", untrusted="x").output)
    if is_dangerous:
        decide(Approval.objects.get(wait__run=run).pk, decision="approve", by="ann")
        run = lab.go_on(run)

    [called] = transcript_of(run).calls[0].turns[0].tool_calls
    assert (run.status, run.result) == ("succeeded", "done\ufffd")
    assert (called.status, called.arguments, called.result) == ("done", {"text": "a\ufffdb\ufffd"}, "a\ufffdb\ufffd")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_the_model_corrects_arguments_that_cannot_be_shown_to_a_person(lab: Lab, number: str) -> None:
    prompts: list[ModelMessage] = []
    script = Turns([("pay", f'{{"cents": {number}}}')], [("pay", '{"cents": 5}')], "done")
    llm, paid = LlmAgent(script.model, name="payer"), []

    def answer(messages: list[ModelMessage], info: Any) -> ModelResponse:
        prompts[:] = messages
        return script.answer(messages, info)

    script.model.function = answer

    @llm.tool_plain(metadata={"dangerous": True})
    def pay(cents: float) -> str:
        paid.append(cents)
        return "paid"

    run = lab.run(lambda run: run.llm(llm, "Pay?", untrusted="x").output)
    [approval] = Approval.objects.filter(wait__run=run)
    decide(approval.pk, decision="approve", by="ann")
    run = lab.go_on(run)

    returned = [str(part.content) for message in prompts for part in message.parts if isinstance(part, ToolReturnPart)]
    assert "not JSON" in returned[0] and "other arguments" in returned[0]
    assert (run.status, paid, approval.arguments) == ("succeeded", [5], {"cents": 5})
    assert [call.tool for turn in transcript_of(run).calls[0].turns for call in turn.tool_calls] == ["pay", "pay"]


def test_a_call_with_a_number_that_is_no_json_keeps_its_name_in_the_journal(lab: Lab) -> None:
    llm = LlmAgent(Turns([("note", '{"weight": NaN}')], "done").model, name="clerk")

    @llm.tool_plain
    def note(weight: float) -> str:
        return "noted"

    run = lab.run(lambda run: run.llm(llm, "go").output)

    [called] = transcript_of(run).calls[0].turns[0].tool_calls
    assert (called.status, called.arguments, called.result) == ("done", '{"weight": NaN}', "noted")
