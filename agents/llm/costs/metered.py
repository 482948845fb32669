"""The model of a run. Before each request it checks whether the run may go on and reserves the most that the request
may cost; afterwards it books the actual cost. Retries, fallbacks, summaries, trials and delegated agents pass it too.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from agents.guards.llm_calls import metered
from agents.journal.budget import NOTHING, Cost, Limits, Reserved, Spends
from agents.journal.concurrent import in_main_thread
from agents.llm.costs.estimate import Counted, counted, output_at_most, require_bounded, worst_case
from agents.llm.costs.prices import Prices
from agents.llm.costs.usage import usage_of
from agents.llm.costs.used import used_by
from agents.llm.providers import failures
from agents.llm.providers.builtin import BUILTIN

BOUNDED = {"usd", "tokens"}  # what a cap limits by the size of a request


class Meter:
    """The meter of one request: give it the response."""

    def __init__(self, model: Model, limits: Limits, settings: ModelSettings | None) -> None:
        self._model = model
        self._prices = Prices(limits.prices)
        self.used: dict[str, Any] = {}
        self.is_bounded = bool(limits.measures & BOUNDED)
        self.settings = bounded(model, settings) if self.is_bounded else settings

    def read(self, response: ModelResponse) -> ModelResponse:
        self.used = used_by(usage_of(response, self._model, self._prices))
        return response


class MeteredModel(WrapperModel):
    """A model that meters its requests. `spends` is of the run that pays. Under a cap of money or tokens each
    request limits its output, so that it cannot cost more than its reservation. An optional request (`is_spare`) fails
    where a budget never has room for it.
    """

    is_metered = True

    def __init__(self, model: Model, spends: Spends, *, is_spare: bool = False) -> None:
        super().__init__(model)
        self._spends = spends
        self._is_spare = is_spare
        self._counted: Counted | None = None  # by the last response of this call

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        async with self._metered(messages, model_settings, model_request_parameters) as meter:
            with metered():
                response = await self.wrapped.request(messages, meter.settings, model_request_parameters)
            meter.read(response)
            self._learn(meter, messages, response)
            return response

    async def compact_messages(
        self, request_context: ModelRequestContext, *, instructions: str | None = None
    ) -> ModelResponse:
        asked = request_context.messages, request_context.model_settings, request_context.model_request_parameters
        async with self._metered(*asked) as meter:
            with metered():
                return meter.read(await self.wrapped.compact_messages(request_context, instructions=instructions))

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        async with self._metered(messages, model_settings, model_request_parameters) as meter:
            with metered():
                asked = messages, meter.settings, model_request_parameters, run_context
                async with self.wrapped.request_stream(*asked) as streamed:
                    yield streamed
            self._learn(meter, messages, meter.read(streamed.get()))

    @asynccontextmanager
    async def _metered(
        self, messages: Sequence[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> AsyncIterator[Meter]:
        """Enclose a request. If the process dies, its reservation stays and is booked as spent when the claim of the
        run ends.
        """
        cost_of = partial(self._cost, messages, settings, parameters)
        reserved, limits = await in_main_thread(self._spends.reserve, cost_of, is_spare=self._is_spare)
        meter = Meter(self.wrapped, limits, settings)
        try:
            yield meter
        except Exception as error:
            await self._settle(reserved, NOTHING if failures.is_uncharged(error) else meter.used)
            raise
        await self._settle(reserved, meter.used)

    def _learn(self, meter: Meter, messages: Sequence[ModelMessage], response: ModelResponse) -> None:
        self._counted = counted(self.wrapped, messages, response) if meter.is_bounded else None

    async def _settle(self, reserved: Reserved | None, used: Any) -> None:
        if reserved is not None:
            await in_main_thread(self._spends.settle, reserved, used)

    def _cost(
        self,
        messages: Sequence[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        limits: Limits,
    ) -> Cost | None:
        """The most that the request may cost of the limited measures; None: no measure is limited."""
        if not limits.measures - {"tool_calls"} or self.model_name == BUILTIN:
            return None
        if limits.measures & BOUNDED:
            require_bounded(self.wrapped, settings)
        return worst_case(self.wrapped, messages, settings, parameters, Prices(limits.prices), self._counted)


def bounded(model: Model, settings: ModelSettings | None) -> ModelSettings:
    return ModelSettings(**{**(settings or {}), "max_tokens": output_at_most(model, settings)})
