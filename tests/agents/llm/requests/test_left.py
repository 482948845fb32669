"""A request as JSON is the same request, or it is not left at all; and another process makes the model only by a name that is enough."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent as LlmAgent
from pydantic_ai import ToolDefinition
from pydantic_ai.messages import BinaryContent, ModelRequest, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pytest_django import Settings

from agents.journal.budget import UNLIMITED, Limits, Reserved, Used
from agents.llm.providers import failures
from agents.llm.providers.models import model_for
from agents.llm.providers.names import names_of
from agents.llm.requests.left import LARGEST, End, HandedBack, Requests, content_of
from tests.support.wire import Wire

CHAT = "openai-chat:gpt-4o"


def content(text: Any = "hello", settings: Any = None, **parameters: Any) -> Any:
    model = model_for(LlmAgent(CHAT, defer_model_check=True))
    asked = [ModelRequest(parts=[UserPromptPart(content=text)])]
    return content_of([CHAT], model, asked, settings, ModelRequestParameters(**parameters), prompt="fingerprint")


@pytest.mark.parametrize("model", [CHAT, "openai-responses:gpt-4o", "anthropic:claude-sonnet-4-6", "ollama:llama3.2"])
@pytest.mark.parametrize("defer", [True, False])
def test_a_model_that_is_named_has_a_name_that_makes_it(wire: Wire, model: str, defer: bool) -> None:
    [name] = names_of(LlmAgent(model, defer_model_check=defer))

    ours, made = model_for(LlmAgent(model, defer_model_check=True)), model_for(LlmAgent(name, defer_model_check=True))
    assert (type(made), made.model_name, made.base_url) == (type(ours), ours.model_name, ours.base_url)


def test_the_model_of_the_settings_has_their_names(wire: Wire, settings: Settings) -> None:
    settings.WAKEFUL_MODEL, settings.WAKEFUL_MODEL_FALLBACKS = CHAT, ["ollama:llama3.2"]
    assert names_of(LlmAgent()) == (CHAT, "ollama:llama3.2")
    settings.WAKEFUL_MODEL, settings.WAKEFUL_MODEL_FALLBACKS = "builtin", []
    assert names_of(LlmAgent()) == ()
    settings.WAKEFUL_MODEL = ""
    assert names_of(LlmAgent()) == ()


def test_a_model_with_a_key_a_client_or_settings_of_its_own_has_no_name(wire: Wire) -> None:
    own = OpenAIProvider(api_key="another key")
    assert names_of(LlmAgent(OpenAIChatModel("gpt-4o", provider=own))) == ()
    elsewhere = OpenAIProvider(base_url="http://127.0.0.1:1/v1")
    assert names_of(LlmAgent(OpenAIChatModel("gpt-4o", provider=elsewhere))) == ()
    given = OpenAIProvider(openai_client=own.client)
    assert names_of(LlmAgent(OpenAIChatModel("gpt-4o", provider=given))) == ()
    assert names_of(LlmAgent(OpenAIChatModel("gpt-4o", settings=ModelSettings(temperature=0)))) == ()
    assert names_of(LlmAgent("test")) == ()


def test_a_request_is_left_whole(wire: Wire) -> None:
    tool = ToolDefinition(name="add", parameters_json_schema={"type": "object"}, metadata={"effect": "read"})
    assert content(settings={"temperature": 0.5}, function_tools=[tool])["settings"] == {"temperature": 0.5}
    assert content([BinaryContent(b"\x00\x01", media_type="image/png"), "what is this?"])


def test_what_json_changes_a_key_or_much_text_is_not_left(wire: Wire) -> None:
    assert content(settings={"extra_headers": {"x-key": "k"}}) is None
    assert content(settings={"extra_body": {"a": 1}}) is None
    assert content(settings={"stop_sequences": ("a",)}) is None
    assert content(settings={"timeout": object()}) is None
    assert content("a NUL \x00") is None
    assert content("x" * LARGEST) is None
    tool = ToolDefinition(name="add", parameters_json_schema={"type": "object"}, metadata={"of": ("a", "tuple")})
    assert content(function_tools=[tool]) is None


class Free:
    """No budget applies."""

    prices = ()

    def reserve(self, cost_of: Callable[[Limits], Any], *, is_spare: bool = False) -> tuple[Reserved | None, Limits]:
        return None, UNLIMITED

    def settle(self, reserved: Reserved, used: Used) -> None:
        raise AssertionError("nothing is reserved")


def test_a_request_that_was_taken_too_often_is_not_made_again(wire: Wire) -> None:
    """Such as one whose answer kills each process that reads it: all other requests of these processes are lost, and paid again."""
    wire.script("talk", "done")

    async def made(tries: int) -> End:
        requests = Requests()
        try:
            return await requests.make(content("[script talk once]"), Free(), tries=tries)
        finally:
            await requests.close()

    end = asyncio.run(made(failures.TRIES + 1))

    assert isinstance(end, HandedBack) and "taken" in end.reason
    assert not wire.requests
