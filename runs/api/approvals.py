"""`/api/v1/approvals/`"""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from runs.actions.approve import decide
from runs.actions.select import select_approvals
from runs.api.resource import Refusal, Resource, faults_at
from runs.api.runs_json import ApprovalQuery, ApprovalSerializer, DecideBody
from runs.models import Approval


class ApprovalResource(ListModelMixin, RetrieveModelMixin, Resource):
    required_permissions = {
        "list": "runs.view_approval",
        "retrieve": "runs.view_approval",
        "decide": "runs.decide_approval",
    }
    queryset = Approval.objects.all()
    serializer_class = ApprovalSerializer

    def get_queryset(self) -> QuerySet[Approval]:
        wanted = ApprovalQuery.read(self.request) if self.action == "list" else {}
        return select_approvals(**wanted).select_related("wait__run")

    @extend_schema(parameters=[ApprovalQuery])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Approvals, newest first."""
        return super().list(request, *args, **kwargs)

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One approval."""
        return super().retrieve(request, *args, **kwargs)

    @extend_schema(request=DecideBody, responses={200: ApprovalSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def decide(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Approve, approve with edited arguments, or deny; the run goes on."""
        body = DecideBody.read(request)
        approval: Approval = self.get_object()
        with faults_at("arguments"):
            decide(approval.pk, by=str(request.user), **body)
        return Response(self.get_serializer(self.get_object()).data)
