"""An agent that answers in every channel: with the number of the message, and those of the messages before it in its conversation."""

import re
import time
from collections.abc import Sequence
from typing import Any

from pydantic_ai import Agent as LlmAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from agents import AgentRun, agent, on

MESSAGE = re.compile(r"message (\d+) of ([a-z]+-\d+)")
KEY = "event.type == 'app_mention' ? event.data.event.thread_ts : event.type == 'message' ? event.subject : event.data.thread_id"


THINKS = 0.2  # seconds


def answer(messages: Sequence[ModelMessage], info: AgentInfo) -> ModelResponse:
    time.sleep(THINKS)
    prompts = [part.content for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
    found = [MESSAGE.findall(str(prompt))[-1] for prompt in prompts]
    *earlier, (number, thread) = found
    strange = [each for each, name in earlier if name != thread]
    before = " ".join(each for each, _ in earlier)
    return ModelResponse(parts=[TextPart(f"{thread}: {number} after [{before}]{' and strangers' if strange else ''}")])


llm: LlmAgent[None, str] = LlmAgent(FunctionModel(answer, model_name="switchboard"), name="switchboard")


@agent(
    "switchboard",
    durable=True,
    triggers=[on.webhook("slack", "app_mention"), on.webhook("telegram", "message"), on.event("mail.received")],
    key=KEY,
    retries=100,
)
def switchboard(run: AgentRun) -> str:
    said = llm_answer(run)
    run.reply(said)
    return said


def llm_answer(run: AgentRun) -> str:
    return str(run.llm(llm, "Answer.", untrusted=text_of(run.event.data), session=run.thread).output)


def text_of(data: dict[str, Any]) -> str:
    if "event" in data:
        return str(data["event"]["text"])
    return str(data["message"]["text"] if "message" in data else data["text"])
