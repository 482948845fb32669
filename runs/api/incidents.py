"""Incidents over HTTP: what fails and why, requeueing what an incident covers, closing, acknowledging and muting one."""

from django.db.models import BigIntegerField, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from runs.actions.incidents import (
    IN_STATUS,
    MUTED,
    NOTE,
    STATUSES,
    acknowledge_incident,
    close_incident,
    failed_runs,
    last_covered,
    mute_incident,
    requeue_incident,
    unmute_incident,
)
from runs.api.body import Body
from runs.api.resource import Query, Refusal, Resource, faults_at
from runs.api.shown import Shown
from runs.models import Incident

FAILED_SHOWN = 100
BIGGEST = BigIntegerField.MAX_BIGINT


class IncidentSerializer(Shown, serializers.ModelSerializer[Incident]):
    status = serializers.ChoiceField(STATUSES, read_only=True)

    class Meta:
        model = Incident
        fields = [
            "id", "status", "kind", "subject", "name", "agent", "cause", "error", "urgency", "count", "in_a_row",
            "first_at", "last_at", "first_run_id", "last_run_id", "opened_at", "closed_at", "closed_by", "reopened",
            "told", "told_at", "acknowledged_at", "acknowledged_by", "acknowledged_note", "escalated", "muted_at", "muted_by",
            "muted_note", "muted_until", "muted_versions",
        ]  # fmt: skip
        read_only_fields = fields


class OneIncidentSerializer(IncidentSerializer):
    covered = serializers.SerializerMethodField(help_text="runs that it covers, whatever became of them")
    failed = serializers.SerializerMethodField(help_text="the first 100 of them that are still failed")
    last_covered = serializers.SerializerMethodField(help_text="identifies the last failure; see requeue")

    class Meta(IncidentSerializer.Meta):
        fields = [*IncidentSerializer.Meta.fields, "covered", "failed", "last_covered"]
        read_only_fields = fields

    def get_covered(self, incident: Incident) -> int:
        return incident.covered.count()

    def get_failed(self, incident: Incident) -> list[str]:
        return [str(run) for run in failed_runs(incident.pk, FAILED_SHOWN)]

    def get_last_covered(self, incident: Incident) -> int:
        return last_covered(incident.pk)


class IncidentQuery(Query):
    status = serializers.ChoiceField(STATUSES, required=False)
    kind = serializers.ChoiceField(Incident.Kind.choices, required=False)
    subject = serializers.CharField(
        required=False, help_text="slug of a trigger or source, name of an agent, id of an item"
    )
    muted = serializers.BooleanField(required=False, allow_null=True, default=None)


class AcknowledgeBody(Body):
    note = serializers.CharField(required=False, default="", allow_blank=True, max_length=NOTE)


class MuteBody(AcknowledgeBody):
    until = serializers.CharField(
        help_text='"version": the next version of the code; "closed": its end; a duration such as "8h"; or a time with an offset'
    )


class RequeueBody(Body):
    upto = serializers.IntegerField(
        required=False,
        default=None,
        min_value=0,
        max_value=BIGGEST,
        help_text="`last_covered` of the incident when you looked: with it, a repeated request requeues no run again that has "
        "failed again",
    )


class RequeuedSerializer(Shown):
    runs = serializers.IntegerField(help_text="requeued")
    refused = serializers.IntegerField(help_text="their work is done or goes on elsewhere, or their payload is gone")
    left = serializers.BooleanField(help_text="there was no time for more: repeat the request")


class IncidentResource(Resource):
    """Failures of one thing with one cause."""

    required_permissions = {
        "list": "runs.view_incident",
        "retrieve": "runs.view_incident",
        "requeue": "runs.requeue_run",
        "close": "runs.close_incident",
        "acknowledge": "runs.acknowledge_incident",
        "mute": "runs.mute_incident",
        "unmute": "runs.mute_incident",
    }
    serializer_class = IncidentSerializer
    queryset = Incident.objects.all()

    def get_queryset(self) -> QuerySet[Incident]:
        return Incident.objects.order_by("-id")

    @extend_schema(parameters=[IncidentQuery])
    def list(self, request: Request) -> Response:
        """Incidents, newest first; without `status`, those that are or were open."""
        asked = IncidentQuery.read(request)
        status, muted = asked.pop("status", None), asked.pop("muted", None)
        found = self.get_queryset().filter(IN_STATUS[status] if status else ~IN_STATUS["noticed"], **asked)
        if muted is not None:
            found = found.filter(MUTED if muted else ~MUTED)
        page = self.paginate_queryset(found) or []
        return self.get_paginated_response(IncidentSerializer(page, many=True).data)

    @extend_schema(responses=OneIncidentSerializer)
    def retrieve(self, request: Request, pk: str) -> Response:
        """One incident, with the runs that it covers."""
        return Response(OneIncidentSerializer(self.get_object()).data)

    @extend_schema(request=RequeueBody, responses=RequeuedSerializer)
    @action(detail=True, methods=["post"])
    def requeue(self, request: Request, pk: str) -> Response:
        """Requeue the runs that it covers and that are still failed, within 20 s."""
        body = RequeueBody.read(request)
        done = requeue_incident(self.get_object().pk, upto=body["upto"], by=str(request.user))
        return Response(RequeuedSerializer(done).data)

    @extend_schema(request=None, responses={200: OneIncidentSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def close(self, request: Request, pk: str) -> Response:
        """Close an open incident whose thing will not succeed by itself."""
        return Response(OneIncidentSerializer(close_incident(self.get_object().pk, by=str(request.user))).data)

    @extend_schema(request=AcknowledgeBody, responses={200: OneIncidentSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def acknowledge(self, request: Request, pk: str) -> Response:
        """Acknowledge an incident that fails: it is escalated no further, and there is no further message while it is open."""
        body = AcknowledgeBody.read(request)
        done = acknowledge_incident(self.get_object().pk, by=str(request.user), note=body["note"])
        return Response(OneIncidentSerializer(done).data)

    @extend_schema(request=MuteBody, responses={200: OneIncidentSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def mute(self, request: Request, pk: str) -> Response:
        """Mute an incident that fails: there is no message about this cause until then."""
        body = MuteBody.read(request)
        with faults_at("until"):
            done = mute_incident(self.get_object().pk, until=body["until"], by=str(request.user), note=body["note"])
        return Response(OneIncidentSerializer(done).data)

    @extend_schema(request=None, responses={200: OneIncidentSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def unmute(self, request: Request, pk: str) -> Response:
        """End a mute before its time."""
        return Response(OneIncidentSerializer(unmute_incident(self.get_object().pk, by=str(request.user))).data)
