from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from django.db import models

from runs.models import AuditEntry

# The address of the client of the current request; "" elsewhere, such as on the command line.
CLIENT: ContextVar[str] = ContextVar("client", default="")


def record(by: str, action: str, target: models.Model, **detail: Any) -> None:
    """Write the audit entry of an action, in the transaction that carries it out."""
    record_about(by, action, target._meta.model_name or "", str(target.pk), **detail)


def record_about(by: str, action: str, kind: str, object_id: str, /, **detail: Any) -> None:
    """Like `record`, for an action on several objects, or on an object without a row."""
    AuditEntry.objects.create(by=by, action=action, kind=kind, object_id=object_id, detail=detail, address=CLIENT.get())


def record_each(by: str, action: str, targets: Sequence[models.Model], **detail: Any) -> None:
    """Like `record`, for each of several objects of a kind."""
    address = CLIENT.get()
    AuditEntry.objects.bulk_create(
        AuditEntry(
            by=by, action=action, kind=one._meta.model_name or "", object_id=str(one.pk), detail=detail, address=address
        )
        for one in targets
    )


def entry(key: str, position: int) -> dict[str, Any]:
    """An entry of a journal as detail: its name and position. The rest of its key may be data, which the log must not keep."""
    return {"step": key.partition(":")[0], "position": position}
