"""Named sessions of agents over HTTP: to read, and to clear."""

from django.db.models import Count, Q, QuerySet, Sum
from django.db.models.functions import Coalesce
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.models import Session, SessionTurn
from runs.actions.sessions import clear_session
from runs.api.resource import NewestFirst, Resource
from runs.api.shown import Shown


class SessionTurnSerializer(Shown, serializers.ModelSerializer[SessionTurn]):
    class Meta:
        model = SessionTurn
        fields = ["number", "run_id", "agent", "at", "is_tainted", "characters", "messages"]
        read_only_fields = fields


class SessionSerializer(Shown, serializers.ModelSerializer[Session]):
    turns = serializers.IntegerField(source="turn_count", help_text="that the next run is given")
    characters = serializers.IntegerField(source="character_count", help_text="of these turns")

    class Meta:
        model = Session
        fields = [
            "name", "run_id", "turns", "characters", "summary", "is_summary_tainted", "most_turns", "most_characters",
            "overflow", "revision", "used_at",
        ]  # fmt: skip
        read_only_fields = fields


class SessionWithTurnsSerializer(SessionSerializer):
    history = SessionTurnSerializer(many=True, source="given", help_text="the turns, oldest first")

    class Meta(SessionSerializer.Meta):
        fields = [*SessionSerializer.Meta.fields, "history"]
        read_only_fields = fields


class ByName(NewestFirst):
    ordering = "name"


class SessionResource(Resource):
    """The histories that runs share by name."""

    required_permissions = {
        "list": "agents.view_session",
        "retrieve": "agents.view_session",
        "clear": "agents.change_session",
    }
    serializer_class = SessionSerializer
    pagination_class = ByName
    queryset = Session.objects.order_by("name")
    lookup_field = "name"
    lookup_value_regex = "[A-Za-z0-9._:@-]+"

    def get_queryset(self) -> QuerySet[Session]:
        given = Q(turns__messages__isnull=False)
        counts = {
            "turn_count": Count("turns", filter=given),
            "character_count": Coalesce(Sum("turns__characters", filter=given), 0),
        }
        return Session.objects.order_by("name").annotate(**counts)

    def list(self, request: Request) -> Response:
        """Every session, without its turns."""
        page = self.paginate_queryset(self.get_queryset()) or []
        return self.get_paginated_response(SessionSerializer(page, many=True).data)

    @extend_schema(responses=SessionWithTurnsSerializer)
    def retrieve(self, request: Request, name: str) -> Response:
        """One session, with the turns that the next run is given."""
        return Response(_with_turns(self.get_object()))

    @extend_schema(request=None, responses=SessionWithTurnsSerializer)
    @action(detail=True, methods=["post"])
    def clear(self, request: Request, name: str) -> Response:
        """Remove all turns and the summary."""
        clear_session(self.get_object().pk, by=str(request.user))
        return Response(_with_turns(self.get_object()))


def _with_turns(session: Session) -> object:
    session.given = session.turns.filter(messages__isnull=False)  # type: ignore[attr-defined]
    return SessionWithTurnsSerializer(session).data
