"""Backfills over HTTP: to start on a schedule, to look at, to cancel."""

from dataclasses import asdict
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.body import Body
from runs.api.resource import Query, Refusal, Resource
from triggers.api.fields import Instant
from triggers.exceptions import RuleError
from triggers.models import Backfill
from triggers.schedules.backfill.advance import cancel_backfill, progress, progress_of
from triggers.schedules.backfill.start import start_backfill


class ProgressSerializer(serializers.Serializer[Any]):
    """Nominal times, counted by what became of them."""

    total = serializers.IntegerField()
    taken = serializers.IntegerField(help_text="of the total so far; the others are still to come")
    open = serializers.IntegerField(help_text="waiting, held or running")
    there = serializers.IntegerField(help_text="had fired before")
    succeeded = serializers.IntegerField()
    failed = serializers.IntegerField()
    cancelled = serializers.IntegerField()
    refused = serializers.IntegerField(help_text="became no run; the event's decision says why")
    held = serializers.IntegerField(help_text="of the open ones: until the trigger is resumed")
    obstacle = serializers.CharField(help_text="why no more are fired, if so")


class BackfillSerializer(serializers.ModelSerializer[Backfill]):
    progress = serializers.SerializerMethodField()

    class Meta:
        model = Backfill
        fields = [
            "id",
            "schedule",
            "start",
            "end",
            "again",
            "at_once",
            "priority",
            "status",
            "progress",
            "by",
            "created_at",
            "ended_at",
        ]
        read_only_fields = fields

    @extend_schema_field(ProgressSerializer)
    def get_progress(self, backfill: Backfill) -> dict[str, Any]:
        known = self.context.get("progress") or {}
        return asdict(known.get(backfill.pk) or progress(backfill))


class BackfillBody(Body):
    start = Instant(help_text="the first instant of the range; without an offset in the schedule's zone")
    end = Instant(help_text="the instant before which it ends; at most now")
    at_once = serializers.IntegerField(default=1, help_text="how many of its runs may run at once")
    priority = serializers.IntegerField(
        default=None, allow_null=True, help_text="of its runs: 0 is most urgent, 9 (the default) least"
    )
    again = serializers.BooleanField(default=False, help_text="also what has fired already")


class BackfillQuery(Query):
    schedule = serializers.IntegerField(required=False, default=None, help_text="id of the schedule")


class BackfillAction:
    """What a resource of schedules takes on to backfill them; its permission is `triggers.backfill_schedule`."""

    @extend_schema(request=BackfillBody, responses={202: BackfillSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def backfill(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Fire the schedule for the nominal times of a past range, a few at a time."""
        body = BackfillBody.read(request)
        try:
            backfill = start_backfill(self.get_object(), by=str(request.user), **body)  # type: ignore[attr-defined]  # of the resource
        except RuleError as error:
            raise serializers.ValidationError({error.field or "detail": [str(error)]}) from None
        return Response(BackfillSerializer(backfill).data, status=202)


class BackfillResource(ListModelMixin, RetrieveModelMixin, Resource):
    """Past ranges of schedules that are fired, or were."""

    required_permissions = {
        "list": "triggers.view_backfill",
        "retrieve": "triggers.view_backfill",
        "cancel": "triggers.backfill_schedule",
    }
    queryset = Backfill.objects.select_related("schedule__task", "schedule__trigger")
    serializer_class = BackfillSerializer

    def get_queryset(self) -> QuerySet[Backfill]:
        backfills = super().get_queryset()
        schedule = BackfillQuery.read(self.request)["schedule"] if self.action == "list" else None
        return backfills if schedule is None else backfills.filter(schedule=schedule)

    @extend_schema(parameters=[BackfillQuery])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Backfills, newest first."""
        page = self.paginate_queryset(self.get_queryset()) or []
        context = {"progress": progress_of(page)}
        return self.get_paginated_response(BackfillSerializer(page, many=True, context=context).data)

    @extend_schema(request=None, responses={200: BackfillSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Fire no more of it, and cancel its runs that have not begun; what runs is left to finish."""
        return Response(BackfillSerializer(cancel_backfill(self.get_object(), by=str(request.user))).data)
