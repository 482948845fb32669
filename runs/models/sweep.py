from django.db import models
from django.db.models.functions import Now

from .run import NIL


class Sweep(models.Model):
    """The progress of a walk of retention; the next prune goes on there."""

    name = models.TextField(primary_key=True, help_text="what it removes, e.g. runs.payload")
    position = models.UUIDField(default=NIL, help_text="the last id it has looked at")
    began_at = models.DateTimeField(db_default=Now(), help_text="when it last started from the oldest row")
    completed_at = models.DateTimeField(null=True, help_text="when it last reached rows that are too young")

    def __str__(self) -> str:
        return self.name
