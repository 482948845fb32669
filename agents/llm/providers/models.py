"""Which model serves an agent: its own, or the one that WAKEFUL_MODEL names."""

from typing import Any

from django.conf import settings
from pydantic_ai import Agent
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.fallback import FallbackModel

from agents.exceptions import Permanent
from agents.llm.providers import certificates
from agents.llm.providers.builtin import BUILTIN, builtin_model
from agents.llm.providers.serving import models_of
from agents.llm.providers.stand_in import current

# The client that each provider of a model needs, by the extra that installs it.
EXTRAS = {
    "anthropic": "anthropic",
    "google": "google",
    "mistral": "mistral",
    "groq": "groq",
    "bedrock": "bedrock",
}


def model_for(agent: Agent[Any, Any]) -> Model:
    """The agent's own model, else WAKEFUL_MODEL with WAKEFUL_MODEL_FALLBACKS behind it. The message of Permanent names
    what is missing.
    """
    certificates.read_once()
    return without_retries(_model_for(agent))


def without_retries(model: Model) -> Model:
    for each in models_of(model):
        client: Any = getattr(each, "client", None)
        if hasattr(client, "max_retries"):
            client.max_retries = 0  # only steps make, count and pay requests
    return model


def _model_for(agent: Agent[Any, Any]) -> Model:
    if stand_in := current().model:
        return stand_in
    own = agent.model
    if own is not None:
        return own if isinstance(own, Model) else named(own)
    if not settings.WAKEFUL_MODEL:
        raise Permanent(
            f"LLM agent {agent.name or 'without a name'!r} names no model, and WAKEFUL_MODEL is not set. Set it to "
            "<provider>:<model>, e.g. WAKEFUL_MODEL=openai:gpt-5.2, or to builtin for the deterministic model of the demo"
        )
    models = [named(name) for name in (settings.WAKEFUL_MODEL, *settings.WAKEFUL_MODEL_FALLBACKS)]
    return FallbackModel(*models) if len(models) > 1 else models[0]


def named(name: str) -> Model:
    """The model of this name ("openai:gpt-5.2"). Permanent: its client is not installed, its key is not set, or there is
    no such provider."""
    if name == BUILTIN:
        return builtin_model()
    try:
        return infer_model(name)
    except ImportError as error:
        extra = next((extra for prefix, extra in EXTRAS.items() if name.startswith(prefix)), "")
        fix = f'run "make run EXTRAS={extra}", or install pydantic-ai-slim[{extra}]' if extra else str(error)
        raise Permanent(f"model {name!r}: the client of its provider is not installed; {fix}") from error
    except (UserError, ValueError) as error:
        raise Permanent(f"model {name!r}: {error}") from error
