"""Prices of models: set by an operator, else from genai-prices, without the network."""

import re
from collections.abc import Sequence
from decimal import Decimal

from genai_prices import Usage, calc_price
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel

from agents.journal.budget import Price
from agents.llm.providers.serving import models_of

MILLION = Decimal(1_000_000)
UNKNOWN = (LookupError, ValueError, AssertionError)
# The suffix that providers append to the requested name, as in gpt-4o-2024-08-06.
VERSION = re.compile(r"[-@:](v?\d[\d.:-]{2,}|latest)")


class Prices:
    def __init__(self, set_by_operators: Sequence[Price] = ()) -> None:
        self._set = {price.model: price for price in set_by_operators}

    def of_response(self, response: ModelResponse, asked: Model) -> Decimal | None:
        """The price of a response, at the dearest of the models that may have given it. None: a price or the usage is
        not known.
        """
        if price := self._of(response.provider_name, response.model_name):
            return _charged(response, price)
        costs = [self._of_response(response, model) for model in _served(response, asked)]
        known = [cost for cost in costs if cost is not None]
        return max(known) if len(known) == len(costs) else None

    def at_most(self, asked: Model, input_tokens: int, output_tokens: int) -> Decimal | None:
        """The most that a request may cost: each of several models (FallbackModel) may charge it. None: one of them has
        no known price.
        """
        costs = [self._at_most(model, input_tokens, output_tokens) for model in models_of(asked)]
        known = [cost for cost in costs if cost is not None]
        return sum(known, Decimal(0)) if len(known) == len(costs) else None

    def _of_response(self, response: ModelResponse, served: Model) -> Decimal | None:
        if price := self._of(served.system, served.model_name):
            return _charged(response, price)
        if is_free(served):
            return Decimal(0)
        try:
            return response.cost().total_price if is_measured(response) else None
        except UNKNOWN:
            return None

    def _at_most(self, model: Model, input_tokens: int, output_tokens: int) -> Decimal | None:
        if price := self._of(model.system, model.model_name):
            dearest = max(price.input, price.cache_read, price.cache_write)
            return (input_tokens * dearest + output_tokens * price.output) / MILLION
        if is_free(model):
            return Decimal(0)
        try:
            return max(
                calc_price(used, model.model_name, provider_id=model.system).total_price
                for used in (
                    Usage(input_tokens=input_tokens, output_tokens=output_tokens),
                    Usage(input_tokens=input_tokens, cache_write_tokens=input_tokens, output_tokens=output_tokens),
                )
            )
        except UNKNOWN:
            return None

    def _of(self, provider: str | None, model: str | None) -> Price | None:
        return self._set.get(f"{provider}:{model}") or self._set.get(model or "")


def is_free(model: Model) -> bool:
    """Does the model run in this process, like those of tests and of the demo?"""
    return all(isinstance(each, FunctionModel | TestModel) for each in models_of(model))


def is_measured(response: ModelResponse) -> bool:
    """Does the response report its usage?"""
    return response.usage.has_values() and not response.usage.unmeasured_requests


def _charged(response: ModelResponse, price: Price) -> Decimal | None:
    if not is_measured(response):
        return None
    usage = response.usage
    plain = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
    return (
        plain * price.input
        + usage.cache_read_tokens * price.cache_read
        + usage.cache_write_tokens * price.cache_write
        + usage.output_tokens * price.output
    ) / MILLION


def _served(response: ModelResponse, asked: Model) -> list[Model]:
    """The models that may have given this response: one, where its provider and name say so."""
    models = list(models_of(asked))
    of_provider = [model for model in models if model.system == response.provider_name] or models
    name = response.model_name or ""
    named = [model for model in of_provider if model.model_name == name]
    return named or [model for model in of_provider if _is_version(name, model.model_name)] or of_provider


def _is_version(name: str, of: str) -> bool:
    return name.startswith(of) and VERSION.fullmatch(name.removeprefix(of)) is not None
