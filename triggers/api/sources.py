"""`/api/v1/sources/`"""

from rest_framework.mixins import ListModelMixin, RetrieveModelMixin

from runs.api.resource import BySlug, Resource
from triggers.api.events_json import SourceSerializer
from triggers.api.triggers import SLUG
from triggers.models import Source


class SourceResource(ListModelMixin, RetrieveModelMixin, Resource):
    """The ways in."""

    required_permissions = {"list": "triggers.view_source", "retrieve": "triggers.view_source"}
    queryset = Source.objects.all()
    serializer_class = SourceSerializer
    pagination_class = BySlug
    lookup_field = "slug"
    lookup_value_regex = SLUG
