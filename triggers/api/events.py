"""`/api/v1/events/`"""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.resource import Refusal, Resource
from triggers.api.events_json import EventDetailSerializer, EventSerializer, RedispatchSerializer, ReplayBody
from triggers.dispatch.replay import replay
from triggers.models import Event, Redispatch
from triggers.sources.cloudevents.intake import EventIntake


class EventResource(EventIntake, ListModelMixin, RetrieveModelMixin, Resource):
    """Recorded events."""

    required_permissions = {
        "create": "triggers.add_event",
        "list": "triggers.view_event",
        "retrieve": "triggers.view_event",
        "replay": "triggers.replay_event",
    }
    queryset = Event.objects.select_related("source").defer("body")
    serializer_class = EventDetailSerializer

    def get_queryset(self) -> QuerySet[Event]:
        events = super().get_queryset()
        if self.action == "list":
            return events.defer("body", "data", "headers")
        return events.prefetch_related("decisions__trigger")

    @extend_schema(responses=EventSerializer)
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Events, newest first."""
        page = self.paginate_queryset(self.get_queryset())
        return self.get_paginated_response(EventSerializer(page, many=True).data)

    @extend_schema(request=ReplayBody, responses={200: RedispatchSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def replay(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Dispatch the event again; it starts new runs."""
        event = self.get_object()
        replay_id = replay(event, trigger=ReplayBody.read(request)["trigger"], by=str(request.user))
        redispatch = Redispatch.objects.select_related("trigger").get(event=event, replay_id=replay_id)
        return Response(RedispatchSerializer(redispatch).data)
