"""What may wake an agent, over HTTP: to look at, to fire, to pause, to replay."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.resource import BySlug, Refusal, Resource
from triggers.api.events_json import (
    EventDetailSerializer,
    EventIdSerializer,
    EventSerializer,
    FireBody,
    PauseBody,
    RedispatchBody,
    RedispatchedSerializer,
    RedispatchSerializer,
    ReplayBody,
    ResumeBody,
    SourceSerializer,
    TriggerSerializer,
)
from triggers.dispatch.hold import pause, resume
from triggers.dispatch.offers import offer_errors
from triggers.dispatch.replay import replay
from triggers.models import Event, Redispatch, Source, Trigger
from triggers.sources.cloudevents.intake import EventIntake
from triggers.sources.manual import fire

SLUG = r"[-\w]+"


class EventResource(EventIntake, ListModelMixin, RetrieveModelMixin, Resource):
    """What happened, as it was recorded."""

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
        """Send the event through the dispatcher again: it makes new runs."""
        event = self.get_object()
        replay_id = replay(event, trigger=ReplayBody.read(request)["trigger"], by=str(request.user))
        redispatch = Redispatch.objects.select_related("trigger").get(event=event, replay_id=replay_id)
        return Response(RedispatchSerializer(redispatch).data)


class TriggerResource(ListModelMixin, RetrieveModelMixin, Resource):
    """Which events wake which agent."""

    required_permissions = {
        "list": "triggers.view_trigger",
        "retrieve": "triggers.view_trigger",
        "fire": "triggers.fire_trigger",
        "pause": "triggers.pause_trigger",
        "resume": "triggers.pause_trigger",
        "redispatch": "triggers.replay_event",
    }
    queryset = Trigger.objects.all()
    serializer_class = TriggerSerializer
    pagination_class = BySlug
    lookup_field = "slug"
    lookup_value_regex = SLUG

    @extend_schema(request=FireBody, responses={202: EventIdSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def fire(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Wake the trigger's agent now, by an event made for it alone."""
        event_id = fire(self.get_object(), data=FireBody.read(request)["data"], by=str(request.user))
        return Response({"event": event_id}, status=202)

    @extend_schema(request=PauseBody, responses={200: TriggerSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Hold the trigger's events until it is resumed."""
        trigger = pause(self.get_object(), reason=PauseBody.read(request)["reason"], by=str(request.user))
        return Response(self.get_serializer(trigger).data)

    @extend_schema(request=ResumeBody, responses={200: TriggerSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Let the trigger's events through again, and run or drop those held meanwhile."""
        trigger = resume(self.get_object(), held=ResumeBody.read(request)["held"], by=str(request.user))
        return Response(self.get_serializer(trigger).data)

    @extend_schema(request=RedispatchBody, responses={200: RedispatchedSerializer})
    @action(detail=True, methods=["post"])
    def redispatch(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Dispatch again all events that ended in an error for this trigger. An event that has a run gets no second one."""
        since = RedispatchBody.read(request)["since"]
        return Response({"events": offer_errors(trigger=self.get_object(), since=since, by=str(request.user))})


class SourceResource(ListModelMixin, RetrieveModelMixin, Resource):
    """The ways in."""

    required_permissions = {"list": "triggers.view_source", "retrieve": "triggers.view_source"}
    queryset = Source.objects.all()
    serializer_class = SourceSerializer
    pagination_class = BySlug
    lookup_field = "slug"
    lookup_value_regex = SLUG
