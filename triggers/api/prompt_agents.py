"""`/api/v1/prompt-agents/`"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from agents.exceptions import DeclarationError
from agents.models import PromptAgent, PromptAgentVersion
from agents.prompt_agents.definition import Definition
from runs.api.body import Body
from runs.api.resource import NewestFirst, Refusal, Resource
from runs.api.shown import Shown
from runs.exceptions import IllegalState
from runs.shadow.process import NotTried, report_of
from triggers.api.fields import naming_each
from triggers.exceptions import RuleError
from triggers.models import Trigger
from triggers.prompt_agents.as_json import Given, caps_of, exported, read
from triggers.prompt_agents.edit import (
    changes,
    create_prompt_agent,
    delete_prompt_agent,
    edit_prompt_agent,
    newest_of,
    restore_prompt_agent,
    set_budget,
    set_checklist,
)


class DefinitionBody(Body):
    instructions = serializers.CharField(max_length=20_000, required=False)
    model = serializers.CharField(
        max_length=200, required=False, allow_blank=True, help_text="such as openai:gpt-5.2; empty: WAKEFUL_MODEL"
    )
    tools = serializers.ListField(child=serializers.CharField(max_length=200), required=False, max_length=50)
    connections = serializers.DictField(
        child=serializers.CharField(max_length=100),
        required=False,
        help_text='the connection for each name that its tools call one by, such as {"mail": "gmail"}; of the installation only',
    )
    session = serializers.CharField(max_length=100, required=False, allow_blank=True)
    by_thread = serializers.BooleanField(required=False, help_text="each thread of messages is a conversation")
    notify = serializers.BooleanField(required=False)
    notify_to = serializers.ListField(
        child=serializers.CharField(max_length=200),
        required=False,
        max_length=50,
        help_text="names of recipients or groups; empty: those who get notifications that name no recipient",
    )
    emit = serializers.CharField(
        max_length=200, required=False, allow_blank=True, help_text="type of an event to emit; empty: none"
    )
    ask_first = serializers.BooleanField(required=False, help_text="a person approves what is sent")
    checklist = serializers.ListField(
        child=serializers.JSONField(),
        required=False,
        max_length=100,
        help_text='texts, or {"text": …, "every": "6h", "paused": false}',
    )
    budget = serializers.DictField(
        child=serializers.CharField(max_length=40),
        required=False,
        help_text='such as {"day_usd": "1", "run_usd": "0.10"}',
    )


class NewPromptAgentBody(DefinitionBody):
    name = serializers.CharField(max_length=100)
    instructions = serializers.CharField(max_length=20_000)
    when = serializers.ListField(
        child=serializers.JSONField(),
        required=False,
        max_length=20,
        help_text='{"schedule": "every weekday at 08:00", "tz": "Europe/Vienna"}, {"events": ["invoice.*"], "source": "", '
        '"filter": ""} or {"absence": ["ci.passed"], "by": "15:00", "since": "12:00"}, with '
        '"reports": [{"on": "failure", "notify": ["ops"]}] if you like; each becomes a trigger',
    )


class PromptAgentBody(DefinitionBody):
    version = serializers.IntegerField(
        required=False, default=None, help_text="the edit is refused if another one came after this version"
    )


class TryBody(Body):
    data = serializers.JSONField(  # type: ignore[assignment]
        required=False, default=None, help_text="as if of an event"
    )


class PromptAgentSerializer(Shown):
    """A prompt agent, as a file of it reads."""

    name = serializers.CharField()
    version = serializers.IntegerField()
    deleted_at = serializers.DateTimeField(allow_null=True)
    triggers = serializers.ListField(child=serializers.CharField(), help_text="slugs")
    instructions = serializers.CharField()
    model = serializers.CharField()
    tools = serializers.ListField(child=serializers.CharField())
    connections = serializers.DictField(child=serializers.CharField())
    acts_for = serializers.CharField(help_text="the user whose own connections it uses; empty: none")
    session = serializers.CharField()
    by_thread = serializers.BooleanField()
    notify = serializers.BooleanField()
    notify_to = serializers.ListField(child=serializers.CharField())
    emit = serializers.CharField()
    ask_first = serializers.BooleanField()
    checklist = serializers.ListField(child=serializers.JSONField())
    budget = serializers.DictField(child=serializers.CharField())

    def to_representation(self, agent: PromptAgent) -> dict[str, Any]:
        slugs = Trigger.objects.filter(agent=agent.name).order_by("slug").values_list("slug", flat=True)
        acts_for = newest_of(agent).definition.get("acts_for", "")
        state = {"acts_for": acts_for, "version": agent.newest, "deleted_at": agent.deleted_at, "triggers": list(slugs)}
        return {**exported(agent), **state}


class VersionSerializer(Shown, serializers.ModelSerializer[PromptAgentVersion]):
    changed = serializers.SerializerMethodField(help_text="fields that differ from the version before")

    class Meta:
        model = PromptAgentVersion
        fields = ["number", "fingerprint", "by", "at", "definition", "changed"]
        read_only_fields = fields

    def get_changed(self, version: PromptAgentVersion) -> list[str]:
        before = self.context["definitions"].get(version.number - 1)
        if before is None:
            return []
        return [one.what for one in changes(Definition.load(before), Definition.load(version.definition))]


class VersionsSerializer(Shown):
    results = VersionSerializer(many=True)
    next = serializers.CharField(allow_null=True, help_text="always null: the newest 100")
    previous = serializers.CharField(allow_null=True)


class TrialSerializer(Shown):
    """The report of a shadow run: nothing of it was sent or kept."""

    outcome = serializers.ChoiceField(choices=["succeeds", "fails", "retries", "stops"])
    error = serializers.CharField()
    stop = serializers.DictField(allow_null=True, help_text="the call or wait that it ended at")
    result = serializers.DictField(allow_null=True, help_text="the verdict")
    left = serializers.DictField(help_text="what it would have sent")
    seconds = serializers.FloatField()


class ByName(NewestFirst):
    ordering = "name"


class PromptAgentResource(Resource):
    """Agents without code."""

    required_permissions = {
        "list": "agents.view_promptagent",
        "retrieve": "agents.view_promptagent",
        "versions": "agents.view_promptagent",
        "create": "agents.change_promptagent",
        "partial_update": "agents.change_promptagent",
        "destroy": "agents.change_promptagent",
        "restore": "agents.change_promptagent",
        "try_now": "agents.try_promptagent",
    }
    queryset = PromptAgent.objects.order_by("name")
    serializer_class = PromptAgentSerializer
    pagination_class = ByName
    lookup_field = "name"
    lookup_value_regex = r"[-\w]+"

    def list(self, request: Request) -> Response:
        """Prompt agents that are not deleted, by name."""
        agents: QuerySet[PromptAgent] = self.get_queryset().filter(deleted_at=None)
        page = self.paginate_queryset(agents) or []
        return self.get_paginated_response(PromptAgentSerializer(page, many=True).data)

    def retrieve(self, request: Request, name: str) -> Response:
        """One prompt agent, also a deleted one."""
        return self._shown(self.get_object())

    @extend_schema(request=NewPromptAgentBody, responses={201: PromptAgentSerializer, 409: Refusal})
    def create(self, request: Request) -> Response:
        """Make a prompt agent, with its triggers, checklist and caps."""
        body = NewPromptAgentBody.read(request)
        with _faults():
            given = read(body)
            _require_caps(request, body["name"], given)
            made = create_prompt_agent(
                body["name"], given.over(), when=given.when, checklist=given.checklist or (), budget=given.budget,
                by=str(request.user),
            )  # fmt: skip
        return Response(PromptAgentSerializer(made).data, status=201)

    @extend_schema(request=PromptAgentBody, responses={200: PromptAgentSerializer, 409: Refusal})
    def partial_update(self, request: Request, name: str) -> Response:
        """Make a new version of it; fields that are not given stay. Runs that have begun end with their version."""
        body, agent, by = PromptAgentBody.read(request), self.get_object(), str(request.user)
        version = body.pop("version")
        with _faults(), transaction.atomic():
            given = read(body)
            _require_caps(request, name, given)
            definition = given.over(Definition.load(newest_of(agent).definition))
            agent = edit_prompt_agent(agent.pk, definition, by=by, version=agent.newest if version is None else version)
            set_budget(agent.name, given.budget, by=by)
            if given.checklist is not None:
                set_checklist(agent.name, given.checklist, by=by)
        return self._shown(agent)

    @extend_schema(responses={204: None, 409: Refusal})
    def destroy(self, request: Request, name: str) -> Response:
        """Delete it: its triggers are disabled, its versions stay."""
        delete_prompt_agent(self.get_object().pk, by=str(request.user))
        return Response(status=204)

    @extend_schema(request=None, responses={200: PromptAgentSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, name: str) -> Response:
        """Undo its deletion. Its triggers stay disabled."""
        with _faults():
            return self._shown(restore_prompt_agent(self.get_object().pk, by=str(request.user)))

    @extend_schema(request=TryBody, responses={200: TrialSerializer, 409: Refusal})
    @action(detail=True, methods=["post"], url_path="try", url_name="try")
    def try_now(self, request: Request, name: str) -> Response:
        """Ask its model now, and see the verdict and what would be sent. Takes up to a minute, and costs what the model costs."""
        body, agent = TryBody.read(request), self.get_object()
        command = ["prompt_agent", "try", agent.name, "--by", str(request.user), "--data", "-"]
        try:
            report = report_of(command, given=json.dumps(body["data"]))
        except NotTried as why:
            raise IllegalState(str(why), status="not_tried") from None
        return Response(TrialSerializer(report).data)

    @extend_schema(responses=VersionsSerializer)
    @action(detail=True, methods=["get"])
    def versions(self, request: Request, name: str) -> Response:
        """The newest 100 versions, each with its author and what it changed."""
        newest = list(self.get_object().versions.all()[:101])
        context = {"definitions": {one.number: one.definition for one in newest}}
        results = VersionSerializer(newest[:100], many=True, context=context).data
        return Response({"results": results, "next": None, "previous": None})

    def _shown(self, agent: PromptAgent) -> Response:
        return Response(PromptAgentSerializer(agent).data)


def _require_caps(request: Request, name: str, given: Given) -> None:
    """Who makes agents may cap them. To change caps that there are is to raise a budget."""
    if given.budget and caps_of(name) and not request.user.has_perm("runs.raise_budget"):
        raise PermissionDenied


@contextmanager
def _faults() -> Iterator[None]:
    """Answer 400, each fault under the name of its field."""
    try:
        with naming_each():
            yield
    except RuleError as error:
        raise ValidationError({error.field or "when": [str(error)]}) from None
    except (DeclarationError, ValueError) as error:
        raise ValidationError({"detail": [str(error)]}) from None
