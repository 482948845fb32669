"""What a request to a model of another framework may cost, and did cost, by the prices of `run.llm`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage

from agents.journal.budget import Cost, Limits
from agents.llm.costs.estimate import FRAME
from agents.llm.costs.metered import BOUNDED
from agents.llm.costs.prices import Prices
from agents.llm.costs.usage import usage_of


@dataclass(frozen=True, kw_only=True)
class Priced:
    """A model as the list of prices knows it. `most`: the tokens of an answer at most, where the model itself limits them."""

    system: str
    model_name: str
    most: int | None

    @property
    def output_at_most(self) -> int:
        return self.most or int(settings.WAKEFUL_OUTPUT_TOKENS)

    def is_to_be_bounded(self, limits: Limits) -> bool:
        return self.most is None and bool(limits.measures & BOUNDED)

    def at_most(self, size: Callable[[], int], limits: Limits) -> Cost | None:
        """None: no measure is limited. `size`: of the request, one for each byte, and for files."""
        if not limits.measures - {"tool_calls"}:
            return None
        input_tokens = FRAME + size()
        return Cost(
            usd=Prices(limits.prices).at_most(self._as_model, input_tokens, self.output_at_most),
            tokens=input_tokens + self.output_at_most,
            requests=1,
            model=self.model_name,
        )

    def usage_of(self, used: RequestUsage, answered_by: str, limits: Limits) -> dict[str, Any]:
        """As a step keeps it. `answered_by`: the name of the model in the answer."""
        response = ModelResponse(
            parts=[], model_name=answered_by or self.model_name, provider_name=self.system, usage=used
        )
        return usage_of(response, self._as_model, Prices(limits.prices))

    @property
    def _as_model(self) -> Any:
        return self  # prices read only its provider and its name
