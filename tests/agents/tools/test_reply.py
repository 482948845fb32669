"""The tool reply."""

import pytest
from pydantic_ai import Agent as LlmAgent

from agents.agent import Agent
from agents.exceptions import NoReplyPlace
from agents.kernel.reply_place import ReplyPlace
from agents.run import AgentRun
from agents.testing import AgentResult, Unanswered, assert_replays, run_agent
from agents.tools import toolbox
from tests.support.llm import Turns

pytestmark = pytest.mark.django_db


def place(*, asks: bool) -> ReplyPlace:
    return ReplyPlace(kind="slack-thread", to={}, name="Slack thread in C1", thread="slack:C1:1.1", asks=asks)


def answered(where: ReplyPlace | None, *, from_strangers: bool = True) -> AgentResult:
    turns = Turns([("reply", {"text": "Four."})], "done")

    def body(run: AgentRun) -> None:
        run.llm(LlmAgent(turns.model, name="asker", tools=[toolbox.get("reply")]), "Answer.", deps=run)

    agent = Agent(name="asker", body=body, durable=True)
    done = run_agent(agent, from_strangers=from_strangers, reply_place=where)
    assert_replays(done)
    return done


def test_the_tool_answers_where_the_operator_lets_models_answer_strangers() -> None:
    [reply] = answered(place(asks=False)).replies

    assert (reply.text, reply.place.thread, reply.is_tainted) == ("Four.", "slack:C1:1.1", True)


def test_it_asks_a_person_first_where_strangers_may_have_asked_for_the_answer() -> None:
    with pytest.raises(Unanswered, match="reply"):
        answered(place(asks=True))


def test_it_does_not_ask_where_no_stranger_has_written() -> None:
    assert len(answered(place(asks=True), from_strangers=False).replies) == 1


def test_it_takes_nothing_but_the_text() -> None:
    assert list(toolbox.get("reply").function_schema.json_schema["properties"]) == ["text"]


def test_without_a_place_the_run_fails_with_the_way_out() -> None:
    with pytest.raises(NoReplyPlace, match="no place to answer"):
        run_agent(Agent(name="plain", body=lambda run: run.reply("Four."), durable=False))
