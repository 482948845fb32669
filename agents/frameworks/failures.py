"""What follows when a request to a model fails: a busy provider gets it again later, from another attempt of the run; one that refuses it
does not."""

from dataclasses import replace
from typing import NoReturn

from pydantic_ai.exceptions import ModelHTTPError

from agents.exceptions import Permanent, describe
from agents.journal.begun import Begun
from agents.journal.budget import NoRoom
from agents.llm.providers import failures

REFUSED = frozenset({400, 401, 402, 403, 404, 405, 413, 422})  # the same request would be refused again
BUSY = frozenset({429, 500, 502, 503, 504, 529})


def is_uncharged(error: Exception) -> bool:
    return failures.is_uncharged(_of_provider(error))


def decide_after_failure(begun: Begun, error: Exception) -> NoReturn:
    if isinstance(error, NoRoom | Permanent):
        raise error
    error_of_provider, status = _of_provider(error), _status_of(error)
    if status in REFUSED:
        raise Permanent(describe(error)) from error
    most = failures.TRIES if status in BUSY else failures.FEW_TRIES
    begun.request = replace(begun.request, retries=most - 1)
    begun.try_again_after = failures.seconds_until_next(error_of_provider, begun.attempts)
    raise error


def _of_provider(error: Exception) -> Exception:
    """As pydantic-ai says it."""
    status = _status_of(error)
    headers = getattr(getattr(error, "response", None), "headers", None)
    return error if status is None else ModelHTTPError(status, "", headers=headers)


def _status_of(error: Exception) -> int | None:
    """The clients of OpenAI, Anthropic and others have the status of HTTP on their errors."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None
