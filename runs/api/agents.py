"""The agents over HTTP: to look at, to stop and to start."""

from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from runs.actions.stop_agents import AgentState, all_agents, find_agent, start_agents, stop_agents
from runs.api.body import Body
from runs.api.resource import Refusal, Resource
from runs.api.shown import Shown
from runs.exceptions import UnknownAgent
from runs.queues.names import meant, spelled


class AgentSerializer(Shown):
    name = serializers.SerializerMethodField(help_text='"all" stands for all of them')
    stopped_at = serializers.DateTimeField(allow_null=True)
    stopped_by = serializers.CharField()
    stopped_reason = serializers.CharField(source="reason")
    running = serializers.IntegerField(help_text="runs of it that are running")

    def get_name(self, agent: AgentState) -> str:
        return spelled(agent.name)


@extend_schema_serializer(many=False)
class AgentListSerializer(Shown):
    results = AgentSerializer(many=True)
    next = serializers.CharField(allow_null=True, help_text="always null: the list is whole")
    previous = serializers.CharField(allow_null=True)


class StoppedRunSerializer(Shown):
    id = serializers.UUIDField()
    agent = serializers.CharField()


class StoppedSerializer(AgentSerializer):
    stopped_runs = StoppedRunSerializer(
        many=True, help_text="runs that were running; they end within seconds, and wait"
    )


class StopBody(Body):
    reason = serializers.CharField(required=False, default="", allow_blank=True, max_length=1000)


class AgentResource(Resource):
    required_permissions = {
        "list": "runs.view_run",
        "retrieve": "runs.view_run",
        "stop": "runs.stop_agent",
        "start": "runs.stop_agent",
    }
    serializer_class = AgentSerializer
    pagination_class = None
    lookup_field = "name"
    lookup_value_regex = r"[^/]+"

    def handle_exception(self, error: Exception) -> Response:
        return super().handle_exception(Http404(str(error)) if isinstance(error, UnknownAgent) else error)

    @extend_schema(responses=AgentListSerializer)
    def list(self, request: Request) -> Response:
        """All agents, by name; the first, "all", stands for all of them."""
        return Response({"results": AgentSerializer(all_agents(), many=True).data, "next": None, "previous": None})

    def retrieve(self, request: Request, name: str) -> Response:
        """One agent."""
        return Response(AgentSerializer(find_agent(meant(name))).data)

    @extend_schema(request=StopBody, responses={200: StoppedSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, name: str) -> Response:
        """Start no more runs of the agent, or of any with "all", and end those that are running within seconds, with their
        requests to models. They go on from their journals once it is started."""
        runs = stop_agents(meant(name), reason=StopBody.read(request)["reason"], by=str(request.user))
        stopped = [{"id": run.id, "agent": run.agent} for run in runs]
        return Response({**AgentSerializer(find_agent(meant(name))).data, "stopped_runs": stopped})

    @extend_schema(request=None, responses={200: AgentSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def start(self, request: Request, name: str) -> Response:
        """Let its runs start again."""
        start_agents(meant(name), by=str(request.user))
        return Response(AgentSerializer(find_agent(meant(name))).data)
