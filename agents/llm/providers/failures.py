"""Errors of a provider: which of them are transient, and when to retry."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic_ai.exceptions import (
    FallbackExceptionGroup,
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelServerError,
    ModelUnavailableError,
    RunTimedOut,
    UsageLimitExceeded,
    UserError,
)
from pydantic_ai.messages import ModelRequestAttempt

from agents.exceptions import Permanent, describe
from agents.kernel.backoff import backoff

# By name: the clients of providers bring HTTP libraries of their own.
NEVER_SENT = frozenset({"ConnectError", "ConnectTimeout", "ConnectionRefusedError"})
PASSING = (ModelRateLimitError, ModelUnavailableError, ModelServerError, ModelConnectionError, ModelRequestTimeout)
REFUSED = (ModelRequestRejectedError, ModelQuotaExceededError)  # the request, the key, the model's name, the account
FIRST, LONGEST = 1.0, 900.0  # seconds before the second try; between two tries at most
SHORT = 5.0  # seconds that a worker waits itself; for longer the run gives it back
# Answers behind which the request may have been worked on: time-outs of a gateway or of the provider.
MAYBE_CHARGED = frozenset({408, 499, 502, 504, 520, 522, 524, 598, 599})
HTTP_ERROR = re.compile(r"\w+: status_code: (\d+)\b")
TRIES = 12  # about an hour where the provider does not say how long to wait
FEW_TRIES = 3  # where its answer cannot be read: it may be on the bill


@contextmanager
def refusals_final() -> Iterator[None]:
    """Turn refusals of pydantic-ai and limits set in code into Permanent: a replay would end the same way."""
    try:
        yield
    except (UserError, UsageLimitExceeded, RunTimedOut) as error:
        raise Permanent(describe(error)) from error


def passes(error: BaseException) -> bool:
    """Will the same request be answered later? Of several models (FallbackModel), by any of them."""
    if isinstance(error, FallbackExceptionGroup):
        return any(passes(one) for one in error.exceptions)
    return isinstance(error, PASSING)


def is_uncharged(error: BaseException) -> bool:
    """Did the provider certainly charge nothing, because it refused the request or was never reached?"""
    if isinstance(error, FallbackExceptionGroup):
        return all(is_uncharged(one) for one in error.exceptions)
    if isinstance(error, ModelHTTPError):
        return error.status_code not in MAYBE_CHARGED
    return isinstance(error, ModelConnectionError) and any(
        type(cause).__name__ in NEVER_SENT for cause in _causes(error)
    )


def was_uncharged(attempt: ModelRequestAttempt) -> bool:
    """Like `is_uncharged`, for a model that failed before a fallback answered. Only the text of its error is left,
    which does not show whether a connection was made.
    """
    answer = HTTP_ERROR.match(attempt.error or "")
    return answer is not None and int(answer[1]) not in MAYBE_CHARGED


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause = error.__cause__ or error.__context__
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def is_refusal(error: BaseException) -> bool:
    """Would the same request be refused again? Of several models, by all of them."""
    if isinstance(error, FallbackExceptionGroup):
        return all(is_refusal(one) for one in error.exceptions)
    return isinstance(error, REFUSED)


def most_tries(error: BaseException) -> int:
    """The most tries of a request that fails like this."""
    return TRIES if passes(error) else FEW_TRIES


def seconds_until_next(error: BaseException, tries: int) -> float:
    """The pause after this many tries: twice as long each time, or longer if the provider asks for it (Retry-After)."""
    return min(max(backoff(FIRST, LONGEST, tries), _asked(error) or 0), LONGEST)


def _asked(error: BaseException) -> float | None:
    if isinstance(error, FallbackExceptionGroup):
        waits = [wait for one in error.exceptions if (wait := _asked(one)) is not None]
        return min(waits, default=None)
    return error.retry_after if isinstance(error, ModelAPIError) else None
