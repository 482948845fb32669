"""`/api/v1/events/`"""

from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.resource import Refusal, Resource
from triggers.api.event_archive import (
    NDJSON,
    ExportQuery,
    ImportedSerializer,
    ImportQuery,
    export_piece,
    import_piece,
)
from triggers.api.event_search import EventPages, EventQuery
from triggers.api.events_json import EventDetailSerializer, EventSerializer, RedispatchSerializer, ReplayBody
from triggers.models import Event, Redispatch
from triggers.replays.replay import replay
from triggers.sources.cloudevents.intake import EventIntake
from triggers.sources.http.answers import OCTETS

NEXT = OpenApiParameter(
    "Link", OpenApiTypes.STR, OpenApiParameter.HEADER, response=[200], description='the next piece, rel="next"'
)


class EventResource(EventIntake, ListModelMixin, RetrieveModelMixin, Resource):
    """Recorded events."""

    required_permissions = {
        "create": "triggers.add_event",
        "list": "triggers.view_event",
        "retrieve": "triggers.view_event",
        "replay": "triggers.replay_event",
        "export": "triggers.export_event",
        "import_events": "triggers.import_event",
    }
    queryset = Event.objects.select_related("source").defer("body")
    serializer_class = EventDetailSerializer
    pagination_class = EventPages

    def get_queryset(self) -> QuerySet[Event]:
        events = super().get_queryset()
        if self.action == "list":
            return events.defer("body", "data", "headers")
        return events.prefetch_related("decisions__trigger")

    @extend_schema(parameters=[EventQuery], responses=EventSerializer)
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Events that meet all conditions, newest first. A page takes a bounded time: it may hold fewer events than
        requested, even none, and still have a `next` one.
        """
        page = self.paginate_queryset(self.get_queryset())
        return self.get_paginated_response(EventSerializer(page, many=True).data)

    @extend_schema(parameters=[ExportQuery, NEXT], responses={(200, NDJSON): OpenApiTypes.BINARY})
    @action(detail=False, methods=["get"])
    def export(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        """A piece of an export: CloudEvents, one JSON object per line, in the order of arrival. While there are more, the header
        `Link` names the next piece. One may be empty, while a transaction is open that may have recorded an event before newer ones."""
        return export_piece(request)

    @extend_schema(
        parameters=[ImportQuery],
        request={NDJSON: OpenApiTypes.BINARY, OCTETS: OpenApiTypes.BINARY},
        responses={200: ImportedSerializer},
    )
    @action(detail=False, methods=["post"], url_path="import")
    def import_events(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Bring back a piece of an export. Known events are left as they are, so a piece may be sent again. Events wake no agent:
        a replay dispatches them."""
        return import_piece(request)

    @extend_schema(request=ReplayBody, responses={200: RedispatchSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def replay(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Dispatch the event again; it starts new runs."""
        event = self.get_object()
        replay_id = replay(event, trigger=ReplayBody.read(request)["trigger"], by=str(request.user))
        redispatch = Redispatch.objects.select_related("trigger").get(event=event, replay_id=replay_id)
        return Response(RedispatchSerializer(redispatch).data)
