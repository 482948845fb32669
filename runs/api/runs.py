"""`/api/v1/runs/`: runs and the actions on them."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from runs.actions.cancel import cancel
from runs.actions.fork import fork
from runs.actions.requeue import requeue
from runs.actions.resolve import resolve
from runs.actions.select import select_runs
from runs.actions.signal import signal
from runs.actions.watch import watch
from runs.api.resource import Refusal, Resource, faults_at
from runs.api.runs_json import (
    ForkBody,
    ResolveBody,
    RunDetailSerializer,
    RunQuery,
    RunSerializer,
    SignalBody,
    WaitQuery,
)
from runs.api.transcript_json import TranscriptQuery, TranscriptSerializer
from runs.durable.transcript import transcript_of
from runs.models import Run


class RunResource(ListModelMixin, RetrieveModelMixin, Resource):
    required_permissions = {
        "list": "runs.view_run",
        "retrieve": "runs.view_run",
        "transcript": "runs.view_run",
        "cancel": "runs.cancel_run",
        "requeue": "runs.requeue_run",
        "fork": "runs.fork_run",
        "signal": "runs.signal_run",
        "resolve": "runs.resolve_run",
    }
    queryset = Run.objects.all()
    serializer_class = RunDetailSerializer

    def get_queryset(self) -> QuerySet[Run]:
        if self.action == "list":
            return select_runs(**RunQuery.read(self.request)).defer("input", "policy", "fired")
        return Run.objects.prefetch_related("attempts")

    @extend_schema(parameters=[RunQuery], responses=RunSerializer)
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Runs, newest first."""
        page = self.paginate_queryset(self.get_queryset())
        return self.get_paginated_response(RunSerializer(page, many=True).data)

    @extend_schema(parameters=[WaitQuery])
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One run. With `wait`, the answer comes when the run is finished, or after that time."""
        if wait := WaitQuery.read(request)["wait"]:
            watch(self.get_object().id, patience=float(wait))
        return super().retrieve(request, *args, **kwargs)

    @extend_schema(parameters=[TranscriptQuery], responses=TranscriptSerializer)
    @action(detail=True)
    def transcript(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The conversation of the run with its models: prompts, answers, calls of tools, tokens and prices."""
        run: Run = self.get_object()
        return Response(TranscriptSerializer(transcript_of(run, **TranscriptQuery.read(request))).data)

    @extend_schema(request=None, responses={200: RunDetailSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Cancel the run; a running one stops within seconds."""
        return self._answer(cancel)

    @extend_schema(request=None, responses={200: RunDetailSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def requeue(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Queue a failed or cancelled run again."""
        return self._answer(requeue)

    @extend_schema(request=ForkBody, responses={200: RunDetailSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def fork(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Create a run with the journal of this one before `step`, optionally with new input; answers with the new run. An
        unfinished run is cancelled; a running one has to stop first, which takes seconds."""
        body = ForkBody.read(request)
        origin: Run = self.get_object()
        with faults_at("step"):
            new = fork(origin.id, by=str(request.user), has_input="input" in body, **body)
        return Response(self.get_serializer(new).data)

    @extend_schema(request=SignalBody, responses={200: RunDetailSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def signal(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Send the run a signal, which it may wait for by this name, now or later."""
        return self._answer(signal, **SignalBody.read(request))

    @extend_schema(request=ResolveBody, responses={200: RunDetailSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def resolve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Say whether the step happened that an uncertain run is parked over."""
        with faults_at("result"):
            return self._answer(resolve, **ResolveBody.read(request))

    def _answer(self, act: Callable[..., object], **how: Any) -> Response:
        run_id: UUID = self.get_object().id
        act(run_id, by=str(self.request.user), **how)
        return Response(self.get_serializer(self.get_object()).data)
