"""POST /api/v1/events/: CloudEvents 1.0, authenticated by a token; the source is the token's."""

from collections.abc import Iterable
from typing import Any, cast
from uuid import UUID

from django.db import transaction
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, inline_serializer
from rest_framework.exceptions import NotFound
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BooleanField, CharField, IntegerField, UUIDField

from runs.api.body import read_body
from triggers.accept import Incoming, SourceDeleted, accept
from triggers.models import ApiToken, Source
from triggers.sources.cloudevents.format import (
    STRUCTURED,
    CloudEvent,
    InvalidEvent,
    UnsupportedMedia,
    read_message,
)
from triggers.sources.http.answers import ANY_BODY, AnyAccept, answer, require_room, status_of
from triggers.sources.http.depth import EXTENSION, read_depth
from triggers.sources.http.headers import UNREADABLE, Headers, UnreadableField, redact

RECORDED = inline_serializer("Recorded", {"event": UUIDField(), "duplicate": BooleanField()})
EACH = {"type": "array", "items": {"$ref": "#/components/schemas/Recorded"}}
REFUSED = inline_serializer(
    "RefusedEvent",
    {
        "detail": CharField(),
        "field": CharField(required=False, help_text="the attribute or header field in question"),
        "index": IntegerField(required=False, help_text="of the event in its batch, from 0"),
    },
)
# A CloudEvent has attributes of its own making, so the schema names those that it must or may have.
EVENT = {
    "type": "object",
    "properties": {
        "specversion": {"type": "string", "enum": ["1.0"]},
        **dict.fromkeys(("id", "source", "type"), {"type": "string"}),
        **dict.fromkeys(("subject", "time", "datacontenttype", "dataschema", "data_base64"), {"type": "string"}),
        "data": {},
    },
    "required": ["specversion", "id", "source", "type"],
    "additionalProperties": {},
}
BINARY = [
    OpenApiParameter(f"ce-{name}", OpenApiTypes.STR, OpenApiParameter.HEADER, description="of an event in binary form")
    for name in ("specversion", "id", "source", "type", "subject", "time")
]


class EventIntake:
    """The `create` action of the events resource."""

    content_negotiation_class: type[BaseContentNegotiation] = AnyAccept

    @extend_schema(
        parameters=BINARY,
        # Without the batch: a client in which a body is a list or an object is generated so that it can send neither.
        request={STRUCTURED: EVENT, **ANY_BODY},
        responses={
            200: OpenApiResponse(RECORDED, "a duplicate"),
            202: OpenApiResponse({"oneOf": [EACH["items"], EACH]}, "recorded; of a batch: what became of each event"),
            400: OpenApiResponse(REFUSED, "no CloudEvent, or a header field of it has non-ASCII characters"),
            404: OpenApiResponse(REFUSED, "the source of the token is disabled or deleted"),
            415: OpenApiResponse(REFUSED, "none of the three forms"),
        },
    )
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Record a CloudEvent: structured, binary (`ce-` headers), or a batch (a JSON array of structured ones, as
        application/cloudevents-batch+json), which is accepted or refused as a whole."""
        body = read_body(request._request)
        token = cast(ApiToken, request.auth)
        require_room(token.source_id)
        headers = Headers(request.headers, request.META.get(UNREADABLE, ()))
        for name in sorted(headers.unreadable):
            if name.startswith("ce-"):
                unreadable = UnreadableField(name)
                return Response({"detail": str(unreadable), "field": name}, 400)
        try:
            message = read_message(headers, body)
        except UnsupportedMedia as refusal:
            return Response({"detail": str(refusal)}, 415)
        except InvalidEvent as refusal:
            return Response(_problem(refusal), 400)

        incoming = list(_incoming(message.events, _source_of(token), redact(headers)))
        # One transaction: either the whole batch is recorded, or its sender retries it.
        try:
            with transaction.atomic():
                accepted = accept(incoming)
        except SourceDeleted:
            raise NotFound("The source of this token was deleted.") from None
        if message.is_batch:
            return Response([answer(one) for one in accepted], 202)
        return Response(answer(accepted[0]), status_of(accepted[0]))


def _source_of(token: ApiToken) -> UUID:
    if not Source.objects.filter(pk=token.source_id, enabled=True).exists():
        raise NotFound("The source of this token is disabled.")
    return token.source_id


def _incoming(events: Iterable[CloudEvent], source_id: UUID, headers: dict[str, str]) -> Iterable[Incoming]:
    for event in events:
        yield Incoming(
            source_id=source_id,
            ce_source=event.source,
            ce_id=event.id,
            type=event.type,
            subject=event.subject,
            time=event.time,
            data=event.data,
            data_error=event.data_error,
            body=event.body,
            headers=headers,
            depth=read_depth(event.extensions.get(EXTENSION)),
        )


def _problem(refusal: InvalidEvent) -> dict[str, object]:
    problem: dict[str, object] = {"detail": str(refusal), "field": refusal.field}
    return problem if refusal.index is None else problem | {"index": refusal.index}
