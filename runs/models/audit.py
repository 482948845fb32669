from django.db import models
from django.db.models.functions import Now


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
