from typing import Any

from django.db import models

from runs.models import AuditEntry


def record(by: str, action: str, target: models.Model, **detail: Any) -> None:
    """Write the audit entry of an action, in the transaction that carries it out."""
    AuditEntry.objects.create(
        by=by, action=action, kind=target._meta.model_name or "", object_id=str(target.pk), detail=detail
    )
