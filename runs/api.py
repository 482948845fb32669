"""Runs over HTTP: what they are, and the two things a program may do to them."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from runs.cancel import cancel
from runs.models import Run
from runs.requeue import requeue
from runs.resource import Refusal, Resource
from runs.selection import select_runs
from runs.serializers import RunDetailSerializer, RunQuery, RunSerializer, WaitQuery
from runs.watch import watch


class RunResource(ListModelMixin, RetrieveModelMixin, Resource):
    required_permissions = {
        "list": "runs.view_run",
        "retrieve": "runs.view_run",
        "cancel": "runs.cancel_run",
        "requeue": "runs.requeue_run",
    }
    queryset = Run.objects.all()
    serializer_class = RunDetailSerializer

    def get_queryset(self) -> QuerySet[Run]:
        if self.action == "list":
            return select_runs(**RunQuery.read(self.request)).defer("input", "policy")
        return Run.objects.prefetch_related("attempts")

    @extend_schema(parameters=[RunQuery], responses=RunSerializer)
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Runs, newest first."""
        page = self.paginate_queryset(self.get_queryset())
        return self.get_paginated_response(RunSerializer(page, many=True).data)

    @extend_schema(parameters=[WaitQuery])
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One run. With `wait`, the answer comes when the run is finished, or when the time is up."""
        if wait := WaitQuery.read(request)["wait"]:
            watch(self.get_object().id, patience=float(wait))
        return super().retrieve(request, *args, **kwargs)

    @extend_schema(request=None, responses={200: RunDetailSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Cancel the run; one that is running stops within seconds."""
        return self._answer(cancel)

    @extend_schema(request=None, responses={200: RunDetailSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def requeue(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Queue a failed or cancelled run again."""
        return self._answer(requeue)

    def _answer(self, act: Callable[..., Run]) -> Response:
        run_id: UUID = self.get_object().id
        act(run_id, by=str(self.request.user))
        return Response(self.get_serializer(self.get_object()).data)
