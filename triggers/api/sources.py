"""`/api/v1/sources/`"""

from triggers.api.events_json import SourceSerializer
from triggers.api.fields import BySlugResource
from triggers.models import Source


class SourceResource(BySlugResource):
    """Sources of events."""

    required_permissions = {"list": "triggers.view_source", "retrieve": "triggers.view_source"}
    queryset = Source.objects.all()
    serializer_class = SourceSerializer
