"""Agents of openai-agents for tests, on a provider of the tests. Only where Wakeful is installed as a package: `make openai-agents`."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI

from agents.agent import Agent
from agents.guards.openai_agents import IS_REACHABLE
from tests.support.wire import Wire, providing

if not IS_REACHABLE:
    pytest.skip("needs the installed package beside openai-agents: make openai-agents", allow_module_level=True)

from agents.openai.sdk import sdk

SDK: Any = sdk()
# Neither the SDK nor pydantic-ai closes the connections of a client.
UNCLOSED = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def provider() -> Iterator[Wire]:
    with providing() as wire:
        yield wire


@pytest.fixture
def wire(provider: Wire, monkeypatch: pytest.MonkeyPatch) -> Wire:
    """The provider that names of models lead to."""
    for name, value in provider.env.items():
        monkeypatch.setenv(name, value)
    return provider


def assistant(name: str = "Clerk", **about: Any) -> Any:
    return SDK.Agent(**{"name": name, "instructions": "Answer.", "model": "gpt-4o", **about})


@pytest.fixture(scope="module")
def chat_model(provider: Wire) -> Any:
    """A model that is an object, with a client of its own that repeats requests."""
    client = AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="wire-openai-key", max_retries=5)
    return SDK.OpenAIChatCompletionsModel(model="gpt-4o", openai_client=client)


def durable(body: Callable[..., Any], **about: Any) -> Agent:
    return Agent(name="clerk", body=body, durable=True, **about)
