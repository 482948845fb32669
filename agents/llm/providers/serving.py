"""The models behind a model: those that serve its requests."""

from collections.abc import Iterator

from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel


def models_of(model: Model) -> Iterator[Model]:
    """The models that may serve a request to this one."""
    if isinstance(model, WrapperModel):
        yield from models_of(model.wrapped)
    elif isinstance(model, FallbackModel):
        for each in model.models:
            yield from models_of(each)
    else:
        yield model
