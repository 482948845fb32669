"""The filter of runs by the run that spawned them."""

from uuid import UUID

from django.db.models import QuerySet

from config.console.parts.filters import LinkedFilter
from config.console.parts.links import short
from runs.models import Run


class ParentFilter(LinkedFilter):
    title = "children of"
    parameter_name = "parent"

    def parse(self, text: str) -> UUID | None:
        try:
            return UUID(text)
        except ValueError:
            return None

    def label(self, value: UUID) -> str:
        return short(value)

    def narrow(self, rows: QuerySet[Run], value: UUID) -> QuerySet[Run]:
        return rows.filter(parent_id=value)
