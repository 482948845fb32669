"""The built-in model writes an answer where the prompt wants one and the message has a question; the answer names the model."""

from typing import Any

import pytest
from pydantic_ai import Agent as LlmAgent

from agents import AgentRun
from agents.agent import Agent
from agents.library.mail_triage import Triage
from agents.llm.providers.builtin import builtin_model
from agents.testing import run_agent
from tests.support.mail_servers import DATA

pytestmark = pytest.mark.django_db
ASKED = "Sort this message, and write the answer if one is due."


def sort(prompt: str, **mail: Any) -> Triage:
    found: list[Triage] = []

    def body(run: AgentRun) -> None:
        llm = LlmAgent(builtin_model(), name="sorter", output_type=Triage)
        found.append(run.llm(llm, prompt, untrusted={**DATA, **mail}).output)

    run_agent(Agent(name="sorter", body=body, durable=True))
    return found[-1]


def test_a_question_gets_an_answer_that_leaves_the_words_to_the_person() -> None:
    done = sort(ASKED, text='She asked: "Do you come?"\nBea')

    assert "[your answer]" in done.answer and "built-in model" in done.answer


@pytest.mark.parametrize(
    "prompt, mail", [(ASKED, {"text": "I come."}), (ASKED, {"is_automatic": True}), ("Sort this message.", {})]
)
def test_nothing_else_does(prompt: str, mail: dict[str, Any]) -> None:
    assert sort(prompt, **mail).answer == ""


def test_a_word_of_the_message_chooses_the_label() -> None:
    assert (sort(ASKED, subject="Your invoice").label, sort(ASKED, subject="Hello").label) == ("Invoice", "Urgent")
