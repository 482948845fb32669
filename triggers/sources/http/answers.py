"""Answers to senders, shared by all sources over HTTP."""

from collections.abc import Callable, Iterable
from typing import TypeVar
from uuid import UUID

from django.db import InterfaceError, OperationalError, connection
from drf_spectacular.types import OpenApiTypes
from rest_framework.exceptions import APIException
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from triggers.accept import Accepted
from triggers.sources.backlog import backlog_exceeded
from triggers.sources.kind import Waits

T = TypeVar("T")
OCTETS = "application/octet-stream"
# A body of any type, for the description of the API: makers of clients know no */*.
ANY_BODY = {OCTETS: OpenApiTypes.BINARY, "*/*": OpenApiTypes.BINARY}


class Unavailable(APIException):
    """Try again after `wait` seconds, which DRF sends as Retry-After; `status` is one on which the sender does, `why` the reason."""

    default_detail = "Temporarily unavailable. Try again later."

    def __init__(self, status: int = 503, *, wait: int = 5, why: str | None = None) -> None:
        super().__init__(why)
        self.status_code = status
        self.wait = wait


class AnyAccept(BaseContentNegotiation):
    """Always JSON: an unusual Accept header must not reject an event."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        renderer = next(iter(renderers))
        return renderer, renderer.media_type


def require_room(source_id: UUID, *, waits: Waits = Waits.SENDER, is_verified: bool = True, status: int = 503) -> None:
    """Raise Unavailable while the backlog of all that wait so, or that of this source, is over its limit: senders then retry later, and
    one source cannot use up the limit of all."""
    if backlog_exceeded(source_id, waits, is_verified=is_verified):
        raise Unavailable(status)


def on_live_connection(work: Callable[[], T]) -> T:
    """Call `work`, and once more on a new connection if the connection is dead.

    After a restart of PostgreSQL the next request of every idle thread fails otherwise, and some senders never retry.
    """
    try:
        return work()
    except (OperationalError, InterfaceError):
        if connection.in_atomic_block or connection.is_usable():
            raise
        connection.close()
        return work()


def answer(accepted: Accepted) -> dict[str, object]:
    return {"event": str(accepted.event_id), "duplicate": accepted.duplicate}


def status_of(accepted: Accepted) -> int:
    return 200 if accepted.duplicate else 202
