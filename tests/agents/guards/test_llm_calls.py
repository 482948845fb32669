"""An LLM agent that is run by itself inside a run is refused, whenever pydantic-ai is imported."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from inspect import getsource
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, direct
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.direct import model_request, model_request_batch, model_request_stream, model_request_sync
from pydantic_ai.embeddings import Embedder
from pydantic_ai.embeddings.test import TestEmbeddingModel
from pydantic_ai.images import ImageGenerator
from pydantic_ai.images.test import TestImageGenerationModel
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.test import TestModel

from agents.exceptions import Permanent
from agents.guards.body import within_body
from agents.guards.llm_calls import DIRECT_WAY_IN, WAYS_IN

ROOT = Path(__file__).resolve().parents[3]
IMPORTED_BEFORE = "from pydantic_ai import Agent"
ASK = """
import sys
{before}
from agents.guards.body import within_body

with within_body():
    from pydantic_ai import Agent

    try:
        Agent("test").run_sync("q")
    except Exception as error:
        print(type(error).__name__, error)
print(Agent("test", output_type=str).run_sync("q").output)
"""


@pytest.mark.parametrize("before", [IMPORTED_BEFORE, ""], ids=["before", "in the body"])
def test_a_direct_agent_call_is_refused_whenever_pydantic_ai_is_imported(before: str) -> None:
    script = ASK.format(before=before)
    process = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )

    assert process.returncode == 0, process.stderr
    refused, outside = process.stdout.splitlines()
    assert refused.startswith("Permanent LLM agent") and "call run.llm(agent, …)" in refused
    assert outside == "success (no tool calls)"


@pytest.mark.parametrize("name", WAYS_IN)
def test_each_way_in_that_is_guarded_is_one_of_an_agent(name: str) -> None:
    assert callable(getattr(Agent, name))


def test_a_realtime_session_inside_a_run_is_refused() -> None:
    agent = Agent(name="voice")

    with within_body(), pytest.raises(Permanent, match="voice.* is run by itself"):
        agent.realtime("openai:gpt-realtime")


def test_a_realtime_session_of_an_agent_around_another_is_refused() -> None:
    with within_body(), pytest.raises(Permanent, match="voice.* is run by itself"):
        WrapperAgent(Agent(name="voice")).realtime("openai:gpt-realtime")


MESSAGES: list[ModelMessage] = [ModelRequest.user_text_prompt("q")]


async def streamed() -> None:
    async with model_request_stream(TestModel(), MESSAGES):
        pass


def asked_synchronously() -> None:
    """pydantic-ai leaves the event loop open that it makes if there is none."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        model_request_sync(TestModel(), MESSAGES)
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@pytest.mark.parametrize(
    "ask",
    [
        asked_synchronously,
        lambda: asyncio.run(model_request(TestModel(), MESSAGES)),
        lambda: asyncio.run(streamed()),
    ],
    ids=["sync", "async", "streamed"],
)
def test_a_request_to_a_model_by_itself_inside_a_run_is_refused(ask: Callable[[], object]) -> None:
    with within_body(), pytest.raises(Permanent, match=r"pydantic_ai\.direct"):
        ask()
    ask()


async def asked_itself(model: Model) -> None:
    await model.request(MESSAGES, None, ModelRequestParameters())


async def asked_itself_in_a_stream(model: Model) -> None:
    async with model.request_stream(MESSAGES, None, ModelRequestParameters()):
        pass


class Own(TestModel):
    """A model that the code of an agent defines."""

    async def request(self, *arguments: Any, **named: Any) -> ModelResponse:
        return await super().request(*arguments, **named)


@pytest.mark.parametrize("model", [TestModel(), Own(), FallbackModel(TestModel(), TestModel())], ids=repr)
@pytest.mark.parametrize("ask", [asked_itself, asked_itself_in_a_stream])
def test_a_direct_method_call_of_a_model_inside_a_run_is_refused(ask: Any, model: Model) -> None:
    with within_body(), pytest.raises(Permanent, match=r"is called by itself inside a run.*call run.llm"):
        asyncio.run(ask(model))
    asyncio.run(ask(model))


def test_every_class_of_models_that_is_defined_inside_a_run_is_guarded() -> None:
    with within_body():

        class Later(TestModel):
            async def request(self, *arguments: Any, **named: Any) -> ModelResponse:
                raise AssertionError

        with pytest.raises(Permanent, match="is called by itself"):
            asyncio.run(asked_itself(Later()))


def test_embeddings_and_pictures_may_be_requested_inside_a_run() -> None:
    async def ask() -> None:
        assert (await Embedder(TestEmbeddingModel()).embed_query("q")).embeddings
        assert (await ImageGenerator(TestImageGenerationModel()).generate("a cat")).images

    with within_body():
        asyncio.run(ask())


def test_every_function_that_requests_a_model_directly_passes_the_guarded_one() -> None:
    asking = (model_request, model_request_batch, model_request_stream)

    assert all(DIRECT_WAY_IN in getsource(function) for function in asking)
    assert set(direct.__all__) >= {"model_request", "model_request_batch", "model_request_stream"}
    assert [name for name in direct.__all__ if not name.startswith("model_request")] == ["StreamedResponseSync"]


DIRECTLY = """
import sys
from agents.guards.body import within_body

with within_body():
    from pydantic_ai.direct import model_request_sync
    from pydantic_ai.messages import ModelRequest

    try:
        model_request_sync("test", [ModelRequest.user_text_prompt("q")])
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_pydantic_ai_direct_is_refused_also_where_the_body_imports_it() -> None:
    process = subprocess.run([sys.executable, "-c", DIRECTLY], cwd=ROOT, capture_output=True, text=True, timeout=120)

    assert process.stdout.startswith("Permanent a model is called by pydantic_ai.direct"), process.stderr
