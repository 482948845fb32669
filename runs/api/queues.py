"""The queues of runs over HTTP: list, pause, resume, limit."""

from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.body import Body
from runs.api.resource import Refusal, Resource, faults_at
from runs.api.shown import Shown
from runs.exceptions import UnknownQueue
from runs.queues.names import meant, spelled
from runs.queues.pause import pause, resume, set_max_running
from runs.queues.state import QueueState, all_queues, find_queue


class QueueSerializer(Shown):
    name = serializers.SerializerMethodField(help_text='"all" stands for all queues: its pause applies to each of them')
    paused_at = serializers.DateTimeField(allow_null=True)
    paused_reason = serializers.CharField()
    paused_by = serializers.CharField()
    max_running = serializers.IntegerField(
        allow_null=True, help_text="most runs at the same time, over all workers; null: no limit"
    )
    running = serializers.IntegerField()
    ready = serializers.IntegerField(help_text="runs that wait for a worker; counted up to 1,000")
    oldest_ready_seconds = serializers.FloatField(source="oldest_seconds")
    children = serializers.IntegerField(help_text="children of live workers that serve it")

    def get_name(self, queue: QueueState) -> str:
        return spelled(queue.name)


@extend_schema_serializer(many=False)
class QueueListSerializer(Shown):
    results = QueueSerializer(many=True)
    next = serializers.CharField(allow_null=True, help_text="always null: the list is complete")
    previous = serializers.CharField(allow_null=True)


class PauseQueueBody(Body):
    reason = serializers.CharField(required=False, default="", allow_blank=True, max_length=1000)


class LimitBody(Body):
    max_running = serializers.IntegerField(min_value=1, allow_null=True)


class QueueResource(Resource):
    required_permissions = {
        "list": "runs.view_queue",
        "retrieve": "runs.view_queue",
        "pause": "runs.pause_queue",
        "resume": "runs.pause_queue",
        "limit": "runs.change_queue",
    }
    serializer_class = QueueSerializer
    pagination_class = None
    lookup_field = "name"
    lookup_value_regex = r"[^/]+"

    def handle_exception(self, error: Exception) -> Response:
        return super().handle_exception(Http404(str(error)) if isinstance(error, UnknownQueue) else error)

    @extend_schema(responses=QueueListSerializer)
    def list(self, request: Request) -> Response:
        """All queues by name; the first one, "all", stands for all of them."""
        return Response({"results": QueueSerializer(all_queues(), many=True).data, "next": None, "previous": None})

    def retrieve(self, request: Request, name: str) -> Response:
        """One queue."""
        return self._answer(meant(name))

    @extend_schema(request=PauseQueueBody, responses={200: QueueSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, name: str) -> Response:
        """Start no more runs of the queue, or of any queue with "all"; events are still accepted and dispatched."""
        body = PauseQueueBody.read(request)
        pause(meant(name), reason=body["reason"], by=str(request.user))
        return self._answer(meant(name))

    @extend_schema(request=None, responses={200: QueueSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, name: str) -> Response:
        """Start its runs again."""
        resume(meant(name), by=str(request.user))
        return self._answer(meant(name))

    @extend_schema(request=LimitBody, responses={200: QueueSerializer})
    @action(detail=True, methods=["post"])
    def limit(self, request: Request, name: str) -> Response:
        """Limit how many of its runs may run at the same time, over all workers; null removes the limit."""
        body = LimitBody.read(request)
        with faults_at("max_running"):
            set_max_running(meant(name), body["max_running"], by=str(request.user))
        return self._answer(meant(name))

    def _answer(self, name: str) -> Response:
        return Response(QueueSerializer(find_queue(name)).data)
