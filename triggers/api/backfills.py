"""`/api/v1/backfills/`; a backfill is started at its schedule."""

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
from runs.api.shown import Shown
from triggers.api.fields import Instant
from triggers.models import Backfill
from triggers.schedules.backfill.advance import cancel_backfill, progress, progress_of


class ProgressSerializer(Shown):
    """Numbers of nominal times, by outcome."""

    total = serializers.IntegerField()
    taken = serializers.IntegerField(help_text="of the total, processed so far")
    open = serializers.IntegerField(help_text="its run waits, is held or runs")
    there = serializers.IntegerField(help_text="had already fired")
    succeeded = serializers.IntegerField()
    failed = serializers.IntegerField()
    cancelled = serializers.IntegerField()
    refused = serializers.IntegerField(help_text="started no run; the event's decision gives the reason")
    held = serializers.IntegerField(help_text="of `open`: held until the trigger is resumed")
    obstacle = serializers.CharField(help_text="why it does not progress; empty: it does")


class BackfillSerializer(Shown, serializers.ModelSerializer[Backfill]):
    progress = serializers.SerializerMethodField()

    class Meta:
        model = Backfill
        fields = [
            "id", "schedule", "start", "end", "again", "at_once", "priority", "status", "progress", "by",
            "created_at", "ended_at",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(ProgressSerializer)
    def get_progress(self, backfill: Backfill) -> dict[str, Any]:
        known = self.context.get("progress") or {}
        return asdict(known.get(backfill.pk) or progress(backfill))


class BackfillBody(Body):
    start = Instant(help_text="first instant of the range; without an offset: a local time in the schedule's zone")
    end = Instant(help_text="end of the range, exclusive; at most now")
    at_once = serializers.IntegerField(default=1, help_text="maximum concurrent runs")
    priority = serializers.IntegerField(
        default=None, allow_null=True, help_text="priority of its runs: 0 is most urgent, 9 (the default) least"
    )
    again = serializers.BooleanField(default=False, help_text="fire also times that have already fired")


class BackfillQuery(Query):
    schedule = serializers.IntegerField(required=False, default=None, help_text="id of the schedule")


class BackfillResource(ListModelMixin, RetrieveModelMixin, Resource):
    """Backfills: past ranges of schedules that are fired later."""

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
        """Fire no further times and cancel runs that have not started. Running runs finish."""
        return Response(BackfillSerializer(cancel_backfill(self.get_object(), by=str(request.user))).data)
