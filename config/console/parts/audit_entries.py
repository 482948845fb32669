"""Write audit entries for Django's own forms and actions, as the services do for all other changes."""

from collections.abc import Iterable
from typing import Any

from django.db.models import Model, QuerySet
from django.http import HttpRequest

from config.console.parts.panel import acting
from runs.models.audit import record


class Audited:
    """Mixin for a ModelAdmin that uses Django's forms; must precede ModelAdmin in the bases."""

    def audit_detail(self, obj: Any) -> dict[str, Any]:
        """Details of an entry about a new or changed object, besides its name."""
        return {}

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        record(acting(request), "create", obj, name=str(obj), **self.audit_detail(obj))
        return super().log_addition(request, obj, message)  # type: ignore[misc]

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        record(acting(request), "change", obj, name=str(obj), changed=_changed(message), **self.audit_detail(obj))
        return super().log_change(request, obj, message)  # type: ignore[misc]

    def log_deletions(self, request: HttpRequest, queryset: Iterable[Model]) -> Any:
        for obj in queryset:
            record(acting(request), "delete", obj, name=str(obj))
        return super().log_deletions(request, queryset)  # type: ignore[misc]


def record_each(request: HttpRequest, action: str, objects: QuerySet[Any]) -> None:
    """An entry for each object of a list's action."""
    for obj in objects:
        record(acting(request), action, obj, name=str(obj))


def _changed(message: Any) -> list[str]:
    if isinstance(message, str):
        return [message]
    return [field for part in message for field in part.get("changed", {}).get("fields", [])]
