"""`/api/v1/sources/`"""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from triggers.api.events_json import SourceBody, SourceSerializer
from triggers.api.fields import BySlugResource, naming_each
from triggers.api.samples import SamplesBody, SamplesTakenSerializer, push
from triggers.models import Source
from triggers.sources.edit import change_source
from triggers.sources.webhooks.limits import without_defaults


class SourceResource(BySlugResource):
    """Sources of events."""

    required_permissions = {
        "list": "triggers.view_source",
        "retrieve": "triggers.view_source",
        "partial_update": "triggers.change_source",
        "samples": "triggers.push_sample",
    }
    queryset = Source.objects.all()
    serializer_class = SourceSerializer

    @extend_schema(request=SourceBody, responses=SourceSerializer)
    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Enable or disable it, or change limits of a webhook; limits that are not given stay."""
        changes, source = SourceBody.read(request), self.get_object()
        if "limits" in changes:
            changes["limits"] = without_defaults({**source.limits, **changes["limits"]})
        with naming_each():
            change_source(source, changes, by=str(request.user))
        return Response(self.get_serializer(source).data)

    @extend_schema(request=SamplesBody, responses={200: SamplesTakenSerializer})
    @action(detail=True, methods=["post"])
    def samples(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Push samples to a source that takes them. A sample of a series and second that is stored already changes nothing, so a
        request may be sent again."""
        taken = push(self.get_object(), SamplesBody.read(request)["samples"])
        return Response(SamplesTakenSerializer(taken).data)
