"""The checklists of agents over HTTP: to look at, to edit and to silence."""

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.checklists.history import difference
from agents.models import Checklist, ChecklistItem, ChecklistRevision
from runs.actions.checklists import ItemEdit, create_checklist, edit_checklist, silence_checklist
from runs.api.body import Body
from runs.api.interval import IntervalField
from runs.api.resource import ById, Refusal, Resource, faults_at
from runs.api.shown import Shown


class ItemSerializer(Shown, serializers.ModelSerializer[ChecklistItem]):
    every = serializers.SerializerMethodField(help_text="seconds; null: at each run")
    paused = serializers.SerializerMethodField()

    class Meta:
        model = ChecklistItem
        fields = [
            "id", "text", "every", "paused", "silenced_until", "due_at", "last_outcome", "last_text",
            "last_checked_at", "last_run_id", "failures_in_a_row",
        ]  # fmt: skip
        read_only_fields = fields
        extra_kwargs = {"last_outcome": {"allow_blank": True}}

    def get_every(self, item: ChecklistItem) -> float | None:
        return item.every.total_seconds() if item.every else None

    def get_paused(self, item: ChecklistItem) -> bool:
        return item.paused_at is not None


class ChecklistSerializer(Shown, serializers.ModelSerializer[Checklist]):
    items = ItemSerializer(many=True, read_only=True)

    class Meta:
        model = Checklist
        fields = ["id", "agent", "trigger", "revision", "silenced_until", "updated_at", "items"]
        read_only_fields = fields


class ChangeSerializer(Shown):
    what = serializers.CharField()
    before = serializers.CharField(help_text="empty: it is new")
    after = serializers.CharField(help_text="empty: it was removed")


class RevisionSerializer(Shown, serializers.ModelSerializer[ChecklistRevision]):
    changes = serializers.SerializerMethodField(help_text="since the revision before")

    class Meta:
        model = ChecklistRevision
        fields = ["number", "by", "at", "definition", "changes"]
        read_only_fields = fields

    @extend_schema_field(ChangeSerializer(many=True))
    def get_changes(self, revision: ChecklistRevision) -> Any:
        before: Mapping[int, Any] = self.context["definitions"]
        return ChangeSerializer(difference(before.get(revision.number - 1), revision.definition), many=True).data


class RevisionsSerializer(Shown):
    results = RevisionSerializer(many=True)
    next = serializers.CharField(allow_null=True, help_text="always null: the newest 100")
    previous = serializers.CharField(allow_null=True)


class ItemBody(Body):
    id = serializers.IntegerField(required=False, default=None, help_text="leave it out of a new item")
    text = serializers.CharField(max_length=2000)
    every = IntervalField(
        required=False, default=None, allow_null=True, help_text='seconds, or a text such as "1h"; null: at each run'
    )
    paused = serializers.BooleanField(required=False, default=False)


class NewChecklistBody(Body):
    agent = serializers.CharField(max_length=200)
    trigger = serializers.CharField(
        required=False, default="", allow_blank=True, max_length=200, help_text="the slug of the only trigger it is for"
    )
    items = ItemBody(many=True)


class ChecklistBody(Body):
    items = ItemBody(many=True, required=False, help_text="all items, in their order; those left out are deleted")
    revision = serializers.IntegerField(
        required=False, default=None, help_text="the edit is refused if another one came after this revision"
    )
    silenced_until = serializers.DateTimeField(required=False, allow_null=True, help_text="until then no item is due")


class ChecklistResource(Resource):
    """Checklists of agents, with their items."""

    required_permissions = {
        "list": "agents.view_checklist",
        "retrieve": "agents.view_checklist",
        "create": "agents.change_checklist",
        "partial_update": "agents.change_checklist",
        "revisions": "agents.view_checklist",
    }
    serializer_class = ChecklistSerializer
    pagination_class = ById
    queryset = Checklist.objects.order_by("id")

    def get_queryset(self) -> QuerySet[Checklist]:
        return Checklist.objects.order_by("id").prefetch_related("items")

    def list(self, request: Request) -> Response:
        """Every checklist, with its items and how the last look at each ended."""
        page = self.paginate_queryset(self.get_queryset()) or []
        return self.get_paginated_response(ChecklistSerializer(page, many=True).data)

    def retrieve(self, request: Request, pk: str) -> Response:
        """One checklist."""
        return Response(ChecklistSerializer(self.get_object()).data)

    @extend_schema(request=NewChecklistBody, responses={201: ChecklistSerializer, 409: Refusal})
    def create(self, request: Request) -> Response:
        """Give an agent, or one of its triggers, a checklist."""
        body = NewChecklistBody.read(request)
        with faults_at("items"):
            made = create_checklist(
                body["agent"], trigger=body["trigger"], items=_items(body["items"]), by=str(request.user)
            )
        return Response(ChecklistSerializer(made).data, status=201)

    @extend_schema(request=ChecklistBody, responses={200: ChecklistSerializer, 409: Refusal})
    def partial_update(self, request: Request, pk: str) -> Response:
        """Replace the items, or silence the checklist, or both."""
        body, checklist, by = ChecklistBody.read(request), self.get_object(), str(request.user)
        with transaction.atomic(), faults_at("items"):
            if "items" in body:
                edit_checklist(checklist.pk, _items(body["items"]), by=by, revision=body["revision"])
            if "silenced_until" in body:
                silence_checklist(checklist.pk, body["silenced_until"], by=by)
        return Response(ChecklistSerializer(self.get_object()).data)

    @extend_schema(responses=RevisionsSerializer)
    @action(detail=True, methods=["get"])
    def revisions(self, request: Request, pk: str) -> Response:
        """The newest 100 revisions, each with its author and what it changed."""
        newest = list(self.get_object().revisions.all()[:101])
        definitions = {one.number: one.definition for one in newest}
        results = RevisionSerializer(newest[:100], many=True, context={"definitions": definitions}).data
        return Response({"results": results, "next": None, "previous": None})


def _items(given: Any) -> list[ItemEdit]:
    return [ItemEdit(**item) for item in given]
