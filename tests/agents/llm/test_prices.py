"""The most that a request may cost, and what an answer did cost."""

from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelAPIError, ModelConnectionError, ModelHTTPError
from pydantic_ai.messages import ImageUrl, ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage

from agents.journal.budget import Price
from agents.llm.estimate import worst_case
from agents.llm.failures import is_uncharged
from agents.llm.prices import Prices

MILLION = 1_000_000


def openai(name: str) -> Model:
    return OpenAIChatModel(name, provider=OpenAIProvider(api_key="none"))


def set_price(model: str, input: int, output: int, *, cache_read: int = 0, cache_write: int = 0) -> Price:
    amounts = [Decimal(amount) for amount in (input, output, cache_read, cache_write)]
    return Price(
        model=model, input=amounts[0], output=amounts[1], cache_read=amounts[2], cache_write=amounts[3]
    )  # fmt: skip


def asked(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text)])


def answer(model: str, **used: Any) -> ModelResponse:
    return ModelResponse(parts=[TextPart("yes")], model_name=model, provider_name="openai", usage=RequestUsage(**used))


def test_the_price_of_a_known_model_needs_no_network() -> None:
    assert Prices().at_most(openai("gpt-4o-mini"), MILLION, MILLION) == Decimal("0.75")


def test_an_operators_price_replaces_it_by_name_or_by_provider_and_name() -> None:
    by_name = Prices([set_price("gpt-4o-mini", 1, 2)])
    by_both = Prices([set_price("gpt-4o-mini", 1, 2), set_price("openai:gpt-4o-mini", 10, 20)])

    assert by_name.at_most(openai("gpt-4o-mini"), MILLION, MILLION) == 3
    assert by_both.at_most(openai("gpt-4o-mini"), MILLION, MILLION) == 30
    used = answer("gpt-4o-mini", input_tokens=MILLION, output_tokens=MILLION)
    assert by_name.of_response(used, openai("gpt-4o-mini")) == 3


def test_writing_to_the_cache_may_be_the_dearest_input() -> None:
    prices = Prices([set_price("m", 1, 0, cache_read=0, cache_write=4)])
    cached = answer("m", input_tokens=MILLION, cache_read_tokens=400_000, cache_write_tokens=100_000)

    assert prices.at_most(openai("m"), MILLION, 0) == 4
    assert prices.of_response(cached, openai("m")) == Decimal("0.9")  # half plain, a tenth written


def test_an_answer_under_a_longer_name_is_priced_as_the_model_that_was_asked() -> None:
    prices = Prices([set_price("house-model", 1, 2)])
    used = answer("house-model-2026-11", input_tokens=MILLION, output_tokens=MILLION)

    assert prices.of_response(used, openai("house-model")) == 3


def test_of_several_models_the_dearest_counts_and_one_unknown_makes_it_unknown() -> None:
    both = FallbackModel(openai("gpt-4o-mini"), openai("gpt-4o"))
    unknown = FallbackModel(openai("gpt-4o-mini"), openai("no-such-model"))

    assert Prices().at_most(both, MILLION, MILLION) == Prices().at_most(openai("gpt-4o"), MILLION, MILLION)
    assert Prices().at_most(unknown, MILLION, MILLION) is None


def test_models_that_run_here_are_free_unless_they_are_priced() -> None:
    assert Prices().at_most(TestModel(), MILLION, MILLION) == 0
    assert Prices([set_price("test", 1, 1)]).at_most(TestModel(), MILLION, MILLION) == 2


@pytest.mark.parametrize("text", ["", "short", "ein schöner Tag, 東京 🙂 " * 500])
def test_input_is_bounded_by_its_bytes(text: str) -> None:
    cost = worst_case(openai("gpt-4o"), [asked(text)], {"max_tokens": 7}, ModelRequestParameters(), Prices())

    assert cost.tokens >= len(text.encode()) + 7
    assert cost.requests == 1


def test_what_the_last_answer_counted_is_not_guessed_again() -> None:
    long = asked("word " * 10_000)
    counted = answer("gpt-4o", input_tokens=10_010, output_tokens=5)
    history: list[ModelMessage] = [long, counted, asked("and now?")]
    other: list[ModelMessage] = [long, answer("gpt-4o-mini", input_tokens=10, output_tokens=5), asked("and now?")]

    def tokens(messages: list[ModelMessage]) -> int:
        return worst_case(openai("gpt-4o"), messages, {"max_tokens": 7}, ModelRequestParameters(), Prices()).tokens

    assert 10_022 < tokens(history) < 15_000
    assert tokens(other) > 50_000  # another model counts otherwise


def test_a_picture_counts_more_than_its_address() -> None:
    shown = ModelRequest(parts=[UserPromptPart(["look", ImageUrl("https://example.com/a.png")])])

    cost = worst_case(openai("gpt-4o"), [shown], {"max_tokens": 7}, ModelRequestParameters(), Prices())

    assert cost.tokens > 10_000


def refused() -> ModelAPIError:
    error = ModelConnectionError("m", "connection refused")
    error.__cause__ = ConnectionRefusedError()
    return error


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503, 529])
def test_a_refused_request_is_not_charged(status: int) -> None:
    assert is_uncharged(ModelHTTPError(status, "m"))
    assert is_uncharged(FallbackExceptionGroup("both", [ModelHTTPError(status, "m"), refused()]))


@pytest.mark.parametrize(
    "error", [ModelHTTPError(408, "m"), ModelHTTPError(504, "m"), ModelConnectionError("m", "reset")]
)
def test_a_request_that_was_cut_off_may_be_charged(error: ModelAPIError) -> None:
    assert not is_uncharged(error)
    assert not is_uncharged(FallbackExceptionGroup("both", [refused(), error]))
