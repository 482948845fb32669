"""Which sources use a connection."""

from triggers.models import Source
from triggers.sources.kind import kinds


def sources_of_connection(name: str) -> list[str]:
    """The slugs of the sources that name this connection."""
    found = Source.objects.filter(settings__connection=name, kind__in=kinds()).order_by("slug")
    return [source.slug for source in found if kinds()[source.kind].connection_of(source.settings) == name]
