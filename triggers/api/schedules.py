"""`/api/v1/schedules/`"""

from dataclasses import replace
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.resource import NewestFirst, Refusal, Resource
from triggers.api.backfills import BackfillBody, BackfillSerializer
from triggers.api.fields import naming, naming_each
from triggers.api.schedules_json import (
    AnswerSerializer,
    CreateBody,
    EditBody,
    FireSerializer,
    FiresQuery,
    FiresSerializer,
    NoteBody,
    PolicyBody,
    PreviewBody,
    PreviewSerializer,
    RunNowBody,
    ScheduleQuery,
    ScheduleSerializer,
    SkipSerializer,
    WhyQuery,
)
from triggers.exceptions import RuleError
from triggers.models import Schedule, Skip
from triggers.schedules.backfill.start import start_backfill
from triggers.schedules.clock import zone_of
from triggers.schedules.edit import (
    create_schedule,
    delete_schedule,
    edit_schedule,
    fire_schedule,
    locked,
    pause_schedule,
    resume_schedule,
)
from triggers.schedules.explain.why import why
from triggers.schedules.plans import UNSETTLED, plan_of
from triggers.schedules.preview import describe, preview, upcoming
from triggers.schedules.rows import RELATED
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.rows import rule_of
from triggers.schedules.rules.rule import Rule
from triggers.schedules.rules.words import read_rule
from triggers.schedules.terms.policy import SchedulePolicy


class LatestFirst(NewestFirst):
    ordering = "-last"


class ScheduleResource(ListModelMixin, RetrieveModelMixin, Resource):
    """Schedules: what fires by the clock."""

    required_permissions = {
        "list": "triggers.view_schedule",
        "retrieve": "triggers.view_schedule",
        "fires": "triggers.view_schedule",
        "why": "triggers.view_schedule",
        "skips": "triggers.view_schedule",
        "preview": "triggers.view_schedule",
        "create": "triggers.add_schedule",
        "partial_update": "triggers.change_schedule",
        "destroy": "triggers.delete_schedule",
        "pause": "triggers.pause_trigger",
        "resume": "triggers.pause_trigger",
        "fire": "triggers.fire_trigger",
        "backfill": "triggers.backfill_schedule",
    }
    queryset = Schedule.objects.select_related(*RELATED).prefetch_related("exclude", UNSETTLED)
    serializer_class = ScheduleSerializer

    def get_queryset(self) -> QuerySet[Schedule]:
        schedules = super().get_queryset()
        return _chosen(schedules, ScheduleQuery.read(self.request)) if self.action == "list" else schedules

    @extend_schema(parameters=[ScheduleQuery])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Schedules, newest first."""
        return super().list(request, *args, **kwargs)

    @extend_schema(request=CreateBody, responses={201: ScheduleSerializer})
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Create a schedule that wakes an agent or fires a trigger."""
        body = CreateBody.read(request)
        with naming("when"):
            schedule = create_schedule(
                name=body["name"], rule=read_rule(body["when"], body["tz"]), agent=body["agent"], trigger=body["trigger"],
                policy=PolicyBody.policy(body), by=str(request.user),
            )  # fmt: skip
        return Response(self.get_serializer(schedule).data, status=201)

    @extend_schema(request=EditBody, responses=ScheduleSerializer)
    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Change its rule, its policy, or both; fields that are not given stay."""
        schedule, body = self.get_object(), EditBody.read(request)
        with naming("when"), transaction.atomic():
            schedule = locked(schedule)  # so that a concurrent edit of other fields is kept
            policy = PolicyBody.policy(body, SchedulePolicy.of(schedule))
            schedule = edit_schedule(schedule, rule=_new_rule(schedule, body), policy=policy, by=str(request.user))
        return Response(self.get_serializer(schedule).data)

    @extend_schema(responses={204: None, 409: Refusal})
    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Delete it; its trigger, events and runs stay. 409 for a schedule that the code declares."""
        delete_schedule(self.get_object(), by=str(request.user))
        return Response(status=204)

    @extend_schema(request=NoteBody, responses={200: ScheduleSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Pause it. Times during the pause do not fire and are not caught up."""
        schedule = pause_schedule(self.get_object(), note=NoteBody.read(request)["note"], by=str(request.user))
        return Response(self.get_serializer(schedule).data)

    @extend_schema(request=None, responses={200: ScheduleSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Resume it, counting from now."""
        return Response(self.get_serializer(resume_schedule(self.get_object(), by=str(request.user))).data)

    @extend_schema(request=RunNowBody, responses={202: FireSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def fire(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Fire once now; the next planned fires do not change."""
        report = RunNowBody.read(request)["report"]
        with naming("detail"), naming_each():
            event_id = fire_schedule(self.get_object(), report=report, by=str(request.user))
        return Response({"event": event_id}, status=202)

    @extend_schema(request=BackfillBody, responses={202: BackfillSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def backfill(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Fire the schedule for the nominal times of a past range, a few at a time."""
        body = BackfillBody.read(request)
        with naming("detail"):
            backfill = start_backfill(self.get_object(), by=str(request.user), **body)
        return Response(BackfillSerializer(backfill).data, status=202)

    @extend_schema(request=PreviewBody, responses=PreviewSerializer)
    @action(detail=False, methods=["post"])
    def preview(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Parse a rule: its meaning in words and its next ten fires. Changes nothing."""
        body = PreviewBody.read(request)
        with naming("when"):
            rule = read_rule(body["when"], body["tz"])
            fires = preview(rule, PolicyBody.policy(body))
        return Response(PreviewSerializer({"rule": rule.words, "next_fires": fires}).data)

    @extend_schema(parameters=[FiresQuery], responses=FiresSerializer, filters=False)
    @action(detail=True)
    def fires(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The schedule's next nominal times, and when each is due."""
        schedule = self.get_object()
        fires = upcoming(schedule, FiresQuery.read(request)["count"])
        plan = plan_of(schedule) if fires else None
        due = [plan.due(fire).astimezone(fire.tzinfo) for fire in fires] if plan else []
        return Response(FiresSerializer({"rule": describe(schedule), "next_fires": fires, "due": due}).data)

    @extend_schema(parameters=[WhyQuery], responses=AnswerSerializer, filters=False)
    @action(detail=True)
    def why(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Explain why it did not run at a time, or the outcome."""
        asked = WhyQuery.read(request)
        try:
            answer = why(self.get_object(), asked["at"], zone=zone_of(asked["tz"]) if asked["tz"] else None)
        except OverflowError:
            raise ValidationError({"at": ["The time is outside the calendar (years 1 to 9999)."]}) from None
        return Response(AnswerSerializer(answer).data)

    @extend_schema(responses=SkipSerializer(many=True))
    @action(detail=True, pagination_class=LatestFirst)
    def skips(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Nominal times of the schedule that did not fire, latest first."""
        page = self.paginate_queryset(Skip.objects.filter(schedule=self.get_object().pk))
        return self.get_paginated_response(SkipSerializer(page, many=True).data)


def _chosen(schedules: QuerySet[Schedule], query: dict[str, Any]) -> QuerySet[Schedule]:
    if query["enabled"] is not None:
        schedules = schedules.filter(task__enabled=query["enabled"])
    if "kind" in query:
        schedules = schedules.filter(kind=query["kind"])
    if "trigger" in query:
        schedules = schedules.filter(trigger__slug=query["trigger"])
    if "q" in query:
        schedules = schedules.filter(task__name__icontains=query["q"])
    return schedules


def _new_rule(schedule: Schedule, body: dict[str, Any]) -> Rule | None:
    """None: its rule stays. RuleError names the field."""
    if "when" in body:
        return read_rule(body["when"], body.get("tz") or _zone_name(schedule))
    if "tz" not in body:
        return None
    rule = rule_of(schedule.task)
    if not isinstance(rule, Cron):
        raise RuleError(f"tz: the rule {rule.words} has no zone; send `when` too", field="tz")
    return replace(rule, zone=zone_of(body["tz"]))


def _zone_name(schedule: Schedule) -> str:
    return str(schedule.task.crontab.timezone) if schedule.task.crontab else "UTC"
