from django.db import models
from django.db.models.functions import Now


class Primary(models.Model):
    """The server that was last seen as the primary, as one row. Replication copies the row to the next primary, which then finds
    that it is another server, or on another timeline."""

    id = models.SmallIntegerField(primary_key=True, default=1, editable=False)
    identity = models.TextField(help_text="system identifier and timeline")
    previous = models.TextField(db_default="", help_text="identity of the one before")
    noticed_at = models.DateTimeField(db_default=Now(), help_text="when its identity was first seen")
    known_until = models.DateTimeField(
        null=True, help_text="newest renewal of a worker seen then; later commits may be lost"
    )

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.identity
