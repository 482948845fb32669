"""The names of the models that serve an agent, by which another process can make the same models."""

from typing import Any

from django.conf import settings
from pydantic_ai import Agent
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model

from agents.llm.providers.builtin import BUILTIN
from agents.llm.providers.stand_in import current

IN_THIS_PROCESS = frozenset({BUILTIN, "test"})


def names_of(agent: Agent[Any, Any]) -> tuple[str, ...]:
    """Empty: this process alone has the model, such as one with a client of its own."""
    if current().model or not current().may_ask_providers:
        return ()
    own = agent.model
    if own is None:
        names = (settings.WAKEFUL_MODEL, *settings.WAKEFUL_MODEL_FALLBACKS)
    elif isinstance(own, Model):
        names = (_name_of(own),)
    else:
        names = (str(own),)
    return () if "" in names or IN_THIS_PROCESS.intersection(names) else names


def _name_of(model: Model) -> str:
    """The name that makes an equal model: pydantic-ai makes one at once where an agent is given a name."""
    if model.settings is not None or getattr(model.provider, "_own_http_client", None) is None:
        return ""  # its client was given to it
    names = (f"{model.system}{way}:{model.model_name}" for way in ("", "-chat", "-responses"))
    return next((name for name in names if _makes(name, model)), "")


def _makes(name: str, model: Model) -> bool:
    try:
        made = infer_model(name)
    except (ImportError, UserError, ValueError):
        return False
    return type(made) is type(model) and made.profile == model.profile and _reaches(made) == _reaches(model)


def _reaches(model: Model) -> tuple[Any, ...]:
    return model.base_url, getattr(getattr(model, "client", None), "api_key", None), type(model.provider)
