"""The most that a request may cost, and what an answer did cost."""

from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelAPIError, ModelConnectionError, ModelHTTPError
from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage

from agents.exceptions import Permanent
from agents.journal.budget import Price
from agents.llm.costs.estimate import Counted, counted, worst_case
from agents.llm.costs.prices import Prices
from agents.llm.costs.usage import usage_of
from agents.llm.providers.failures import is_uncharged, seconds_until_next

MILLION = 1_000_000


def openai(name: str) -> Model:
    return OpenAIChatModel(name, provider=OpenAIProvider(api_key="none"))


def set_price(model: str, input: int, output: int, *, cache_read: int = 0, cache_write: int = 0) -> Price:
    amounts = [Decimal(amount) for amount in (input, output, cache_read, cache_write)]
    return Price(
        model=model, input=amounts[0], output=amounts[1], cache_read=amounts[2], cache_write=amounts[3]
    )  # fmt: skip


def request_of(text: str) -> ModelRequest:
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


def test_an_answer_under_a_longer_name_is_priced_as_the_model_that_was_requested() -> None:
    prices = Prices([set_price("house-model", 1, 2)])
    used = answer("house-model-2026-11", input_tokens=MILLION, output_tokens=MILLION)

    assert prices.of_response(used, openai("house-model")) == 3


def test_several_models_may_all_charge_a_request_and_one_unknown_makes_it_unknown() -> None:
    prices = Prices([set_price("small", 1, 2), set_price("big", 10, 20)])
    both = FallbackModel(openai("small"), openai("big"))
    unknown = FallbackModel(openai("small"), openai("no-such-model"))

    assert prices.at_most(both, MILLION, MILLION) == 33
    assert prices.at_most(unknown, MILLION, MILLION) is None
    one, two = (
        worst_case(model, [request_of("yes")], {"max_tokens": 7}, ModelRequestParameters(), prices)
        for model in (openai("small"), both)
    )
    assert (two.tokens, two.requests) == (2 * one.tokens, 1)


@pytest.mark.parametrize(
    ("served", "cost"),
    [
        ("own-big", 100),
        ("own-big-2026-01-01", 100),
        ("own-big@20260101", 100),
        ("own-big-002", 100),
        ("own-2026-01-01", 1),
        ("own-latest", 1),
        ("own-huge", 100),
        ("house-model", 100),
    ],
)
def test_the_price_is_of_the_model_that_the_answer_names_or_else_of_the_dearest(served: str, cost: int) -> None:
    prices = Prices([set_price("own", 1, 1), set_price("own-big", 100, 100)])

    for both in (FallbackModel(openai("own"), openai("own-big")), FallbackModel(openai("own-big"), openai("own"))):
        assert prices.of_response(answer(served, input_tokens=MILLION), both) == cost


def test_an_answer_of_several_models_without_a_price_for_each_has_no_known_price() -> None:
    prices = Prices([set_price("own", 1, 1)])
    both = FallbackModel(openai("own"), openai("mystery"))

    assert prices.of_response(answer("own-2026-01-01", input_tokens=MILLION), both) == 1
    assert prices.of_response(answer("something-else", input_tokens=MILLION), both) is None


def test_models_that_run_here_are_free_unless_they_are_priced() -> None:
    assert Prices().at_most(TestModel(), MILLION, MILLION) == 0
    assert Prices([set_price("test", 1, 1)]).at_most(TestModel(), MILLION, MILLION) == 2


@pytest.mark.parametrize("text", ["", "short", "ein schöner Tag, 東京 🙂 " * 500])
def test_input_is_bounded_by_its_bytes(text: str) -> None:
    cost = worst_case(openai("gpt-4o"), [request_of(text)], {"max_tokens": 7}, ModelRequestParameters(), Prices())

    assert cost.tokens >= len(text.encode()) + 7
    assert cost.requests == 1


def test_tokens_that_the_last_answer_counted_are_not_estimated_again() -> None:
    model, long = openai("gpt-4o"), request_of("word " * 10_000)
    counted_answer = answer("gpt-4o", input_tokens=10_010, output_tokens=5)
    known = counted(model, [long], counted_answer)
    assert counted(model, [long], answer("gpt-4o-mini", input_tokens=10)) is None  # another model counts otherwise

    def tokens(messages: list[ModelMessage], known: Counted | None) -> int:
        return worst_case(model, messages, {"max_tokens": 7}, ModelRequestParameters(), Prices(), known).tokens

    assert 10_017 < tokens([long, counted_answer, request_of("and now?")], known) < 15_000
    assert tokens([long, counted_answer, request_of("and now?")], None) > 50_000  # who counted it is not known
    assert tokens([request_of("before"), long, counted_answer, request_of("and now?")], known) > 50_000
    assert tokens([long, answer("gpt-4o", input_tokens=1), request_of("x" * 90_000)], known) > 90_000


def test_pictures_that_tools_and_models_give_count_like_those_of_a_prompt() -> None:
    picture = BinaryContent(b"x", media_type="image/png")
    given = ModelRequest(parts=[ToolReturnPart("look", ["see", picture, picture], "call-1")])
    drawn = ModelResponse(parts=[FilePart(picture)])

    cost = worst_case(openai("gpt-4o"), [given, drawn], {"max_tokens": 7}, ModelRequestParameters(), Prices())

    assert 30_000 < cost.tokens < 33_000


@pytest.mark.parametrize("bound", [-1, "x", 1.5])
def test_a_bound_of_the_output_that_is_no_whole_number_is_refused_by_name(bound: Any) -> None:
    with pytest.raises(Permanent, match="max_tokens of the model settings is"):
        worst_case(openai("gpt-4o"), [request_of("x")], {"max_tokens": bound}, ModelRequestParameters(), Prices())


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


GATEWAYS = [408, 499, 502, 504, 520, 522, 524, 598, 599]


@pytest.mark.parametrize(
    "error", [*(ModelHTTPError(status, "m") for status in GATEWAYS), ModelConnectionError("m", "reset")]
)
def test_a_request_that_was_cut_off_may_be_charged(error: ModelAPIError) -> None:
    assert not is_uncharged(error)
    assert not is_uncharged(FallbackExceptionGroup("both", [refused(), error]))


@pytest.mark.parametrize(
    ("error", "may_be_more"),
    [
        (ModelHTTPError(429, "m", "status_code: 504"), False),
        (ModelHTTPError(500, "m"), False),
        (ModelHTTPError(504, "m"), True),
        (ModelHTTPError(524, "m"), True),
        (ModelConnectionError("m", "reset"), True),
    ],
)
def test_an_answer_records_whether_a_model_before_it_may_have_charged(error: ModelAPIError, may_be_more: bool) -> None:
    def fail(messages: Any, info: Any) -> ModelResponse:
        raise error

    both = FallbackModel(FunctionModel(fail), TestModel())
    response = async_to_sync(both.request)([request_of("yes")], None, ModelRequestParameters())

    assert usage_of(response, both, Prices()).get("may_be_more", False) is may_be_more


def test_an_answer_that_was_rejected_may_have_been_charged() -> None:
    def rejects(response: ModelResponse) -> bool:
        return response.model_name == "first"

    both = FallbackModel(TestModel(model_name="first"), TestModel(), fallback_on=rejects)
    response = async_to_sync(both.request)([request_of("yes")], None, ModelRequestParameters())

    assert usage_of(response, both, Prices())["may_be_more"] is True


@pytest.mark.parametrize("retry_after", ["0", "-5", "nan", "Sun, 06 Nov 1994 08:49:37 GMT"])
def test_a_provider_cannot_make_the_waits_between_tries_shorter(retry_after: str) -> None:
    error = ModelHTTPError(429, "m", headers={"retry-after": retry_after})

    assert [seconds_until_next(error, tries) for tries in range(1, 12)] == [
        1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900
    ]  # fmt: skip


def test_a_provider_may_make_the_waits_between_tries_longer() -> None:
    error = ModelHTTPError(429, "m", headers={"retry-after": "20"})

    assert [seconds_until_next(error, tries) for tries in (1, 5, 6, 99)] == [20, 20, 32, 900]
