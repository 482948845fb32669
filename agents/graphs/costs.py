"""What a request to a model of LangChain may cost, and did cost."""

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from pydantic_ai.usage import RequestUsage

from agents.frameworks.costs import Priced
from agents.graphs.messages import Asked
from agents.journal.budget import Limits
from agents.llm.costs.estimate import FILE

# Providers that LangChain and the list of prices name differently.
PROVIDERS = {
    "google_genai": "google", "google_vertexai": "google", "mistralai": "mistral", "amazon_bedrock": "aws", "azure": "openai",
}  # fmt: skip


def priced(model: BaseChatModel) -> Priced:
    told: Any = model._get_ls_params()
    provider = told.get("ls_provider") or ""
    return Priced(
        system=PROVIDERS.get(provider, provider),
        model_name=told.get("ls_model_name") or "",
        most=told.get("ls_max_tokens"),
    )


def size_of(asked: Asked) -> int:
    return asked.size + FILE * sum(map(_files, asked.messages))


def usage_of(message: AIMessage, priced: Priced, limits: Limits) -> dict[str, Any]:
    used: Any = message.usage_metadata or {}
    details = used.get("input_token_details") or {}
    tokens = RequestUsage(
        input_tokens=used.get("input_tokens", 0),
        output_tokens=used.get("output_tokens", 0),
        cache_read_tokens=details.get("cache_read") or 0,
        cache_write_tokens=details.get("cache_creation") or 0,
    )
    return priced.usage_of(tokens, str(message.response_metadata.get("model_name") or ""), limits)


def _files(message: Any) -> int:
    content = message.content
    return (
        0 if isinstance(content, str) else sum(isinstance(one, dict) and one.get("type") != "text" for one in content)
    )
