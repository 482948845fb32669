from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from django.db import models
from django.db.models.functions import Now

# The address of the client of the current request; "" elsewhere, such as on the command line.
CLIENT: ContextVar[str] = ContextVar("client", default="")


class AuditEntry(models.Model):
    """Who did what to which object, from the admin, the API or the command line. Immutable: the database refuses changes,
    except that retention deletes old entries and erasure takes names out of `detail`."""

    at = models.DateTimeField(db_default=Now())
    by = models.TextField(help_text='such as "admin:ada", "token:ci", "cli:deploy"')
    action = models.TextField()
    kind = models.TextField(help_text="model name, lower case")
    object_id = models.TextField()
    detail = models.JSONField(default=dict)
    address = models.TextField(
        default="", db_default="", help_text="the client's IP address; empty at the command line"
    )

    class Meta:
        verbose_name_plural = "audit entries"
        indexes = [models.Index(fields=["kind", "object_id", "-at"], name="audit_by_object")]

    def __str__(self) -> str:
        return f"{self.by} {self.action} {self.kind} {self.object_id}"


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


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The detail of an edit: what differs, as it is now, and under `was` as it was before. What stays the same is left out."""
    differs = [name for name, value in after.items() if before[name] != value]
    return {**{name: after[name] for name in differs}, "was": {name: before[name] for name in differs}}


def entry(key: str, position: int) -> dict[str, Any]:
    """An entry of a journal as detail: its name and position. The rest of its key may be data, which the log must not keep."""
    return {"step": key.partition(":")[0], "position": position}
