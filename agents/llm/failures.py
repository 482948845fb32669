"""Errors of a provider: which of them pass, and when to ask again."""

from pydantic_ai.exceptions import (
    FallbackExceptionGroup,
    ModelAPIError,
    ModelConnectionError,
    ModelRateLimitError,
    ModelRequestTimeout,
    ModelServerError,
    ModelUnavailableError,
)

PASSING = (ModelRateLimitError, ModelUnavailableError, ModelServerError, ModelConnectionError, ModelRequestTimeout)
FIRST, LONGEST = 1.0, 900.0  # seconds before the second try; between two tries at most
SHORT = 5.0  # seconds that a worker waits itself; for longer the run gives it back
TRIES = 12  # about an hour where the provider does not say how long to wait


def passes(error: BaseException) -> bool:
    """Will the same request be answered later? Of several models (FallbackModel), by any of them."""
    if isinstance(error, FallbackExceptionGroup):
        return any(passes(one) for one in error.exceptions)
    return isinstance(error, PASSING)


def seconds_until_next(error: BaseException, tries: int) -> float:
    """How long to wait after so many tries: what the provider asks for (Retry-After), or twice as long each time."""
    asked = _asked(error)
    return min(asked if asked is not None else FIRST * 2 ** (tries - 1), LONGEST)


def _asked(error: BaseException) -> float | None:
    if isinstance(error, FallbackExceptionGroup):
        waits = [wait for one in error.exceptions if (wait := _asked(one)) is not None]
        return min(waits, default=None)
    return error.retry_after if isinstance(error, ModelAPIError) else None
