"""What every way in over HTTP has in common: how it answers, and when to come back."""

from collections.abc import Callable, Iterable
from typing import TypeVar
from uuid import UUID

from django.db import InterfaceError, OperationalError, connection
from rest_framework.exceptions import APIException
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from triggers.accept import Accepted, backlog_exceeded

T = TypeVar("T")


class Unavailable(APIException):
    status_code = 503
    default_detail = "Come back later."
    wait = 5  # seconds; DRF makes Retry-After of it


class AnyAccept(BaseContentNegotiation):
    """JSON, whatever Accept says: a sender's header must not cost it its event."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        renderer = next(iter(renderers))
        return renderer, renderer.media_type


def require_room(source_id: UUID, *, is_verified: bool = True) -> None:
    """Refuse new events while the dispatcher is far behind, or far behind with this source: senders keep them better than a
    backlog would, and no source may use up what all share."""
    if backlog_exceeded(source_id, is_verified=is_verified):
        raise Unavailable


def on_live_connection(work: Callable[[], T]) -> T:
    """Do it, and once more on a new connection if the old one turns out dead.

    PostgreSQL restarts; the next request of every idle thread finds out, and some senders never send again.
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
