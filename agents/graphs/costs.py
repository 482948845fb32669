"""What a request to a model of LangChain may cost, and did cost, by the prices of `run.llm`."""

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage

from agents.graphs.messages import Asked
from agents.journal.budget import Cost, Limits
from agents.llm.costs.estimate import FILE, FRAME
from agents.llm.costs.metered import BOUNDED
from agents.llm.costs.prices import Prices
from agents.llm.costs.usage import usage_of

# Providers that LangChain and the list of prices name differently.
PROVIDERS = {
    "google_genai": "google", "google_vertexai": "google", "mistralai": "mistral", "amazon_bedrock": "aws", "azure": "openai",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Priced:
    """A model as the list of prices knows it. `most`: the tokens of an answer at most, where the model itself limits them."""

    system: str
    model_name: str
    most: int | None

    @classmethod
    def of(cls, model: BaseChatModel, options: Any) -> "Priced":
        told: Any = model._get_ls_params(**options)
        provider = told.get("ls_provider") or ""
        return cls(
            system=PROVIDERS.get(provider, provider),
            model_name=told.get("ls_model_name") or "",
            most=told.get("ls_max_tokens"),
        )

    @property
    def output_at_most(self) -> int:
        return self.most or int(settings.WAKEFUL_OUTPUT_TOKENS)

    def is_to_be_bounded(self, limits: Limits) -> bool:
        return self.most is None and bool(limits.measures & BOUNDED)

    def at_most(self, asked: Asked, limits: Limits) -> Cost | None:
        """None: no measure is limited."""
        if not limits.measures - {"tool_calls"}:
            return None
        input_tokens = FRAME + asked.size + FILE * sum(map(_files, asked.messages))
        return Cost(
            usd=Prices(limits.prices).at_most(self._as_model, input_tokens, self.output_at_most),
            tokens=input_tokens + self.output_at_most,
            requests=1,
            model=self.model_name,
        )

    def usage_of(self, message: AIMessage, limits: Limits) -> dict[str, Any]:
        """As a step keeps it."""
        used: Any = message.usage_metadata or {}
        details = used.get("input_token_details") or {}
        response = ModelResponse(
            parts=[],
            model_name=str(message.response_metadata.get("model_name") or self.model_name),
            provider_name=self.system,
            usage=RequestUsage(
                input_tokens=used.get("input_tokens", 0),
                output_tokens=used.get("output_tokens", 0),
                cache_read_tokens=details.get("cache_read") or 0,
                cache_write_tokens=details.get("cache_creation") or 0,
            ),
        )
        return usage_of(response, self._as_model, Prices(limits.prices))

    @property
    def _as_model(self) -> Any:
        return self  # prices read only its provider and its name


def _files(message: Any) -> int:
    content = message.content
    return (
        0 if isinstance(content, str) else sum(isinstance(one, dict) and one.get("type") != "text" for one in content)
    )
