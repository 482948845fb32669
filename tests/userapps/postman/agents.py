"""An agent that is as careless with the token of its connection as code can be. Its model writes its prompts to a file beside
WAKEFUL_HOME."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from pydantic_ai import Agent as LlmAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from agents import AgentRun, agent, on


def answer(messages: Sequence[ModelMessage], info: AgentInfo) -> ModelResponse:
    with (Path(settings.WAKEFUL_HOME).parent / "prompts.log").open("a") as prompts:
        prompts.write(f"{messages!r}\n")
    return ModelResponse(parts=[TextPart("It is noted.")])


llm: LlmAgent[None, str] = LlmAgent(FunctionModel(answer, model_name="postman"), name="postman")


@agent("postman", durable=True, triggers=[on.event("post.read")], connections=["mail"], retries=3)
def postman(run: AgentRun) -> dict[str, Any]:
    url = run.event.data["url"]
    said = run.step("read", lambda: read(run, url), effect="read")
    run.llm(llm, f"The header was {said['header']}", untrusted=said["header"])
    run.state.set("header", said["header"])
    run.emit("post.was_read", said)
    run.notify(f"The header was {said['header']}")
    if run.event.data["fails"]:
        run.step("fail", lambda: fail(run, url), effect="read")
    return said


def read(run: AgentRun, url: str) -> dict[str, str]:
    with run.connection("mail") as http:
        header = http.get(f"{url}/messages").request.headers["Authorization"]
    run.log.warning("its header", header=header)
    print(header)
    return {"header": header}


def fail(run: AgentRun, url: str) -> None:
    with run.connection("mail") as http:
        raise RuntimeError(http.get(f"{url}/messages").request.headers["Authorization"])
