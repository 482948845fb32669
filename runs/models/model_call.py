from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from .wait import Wait


class ModelCall(models.Model):
    """A request to a model that a run waits for and a caller makes. It is gone once the wait is over."""

    wait = models.OneToOneField(Wait, models.CASCADE, primary_key=True, related_name="call", db_constraint=False)
    step = models.JSONField(help_text="the entry of the journal that the answer becomes")
    content = models.JSONField(help_text="names of the models, messages, settings and tools")
    epoch = models.PositiveIntegerField(help_text="the claim that left the request")
    claim = models.UUIDField(help_text="identity of that claim")
    owner_id = models.UUIDField(
        null=True, help_text="the process that makes the request; its lease is that process's row"
    )
    tries = models.PositiveIntegerField(db_default=0)
    due_at = models.DateTimeField(db_default=Now(), help_text="not before: its provider was busy")
    error = models.TextField(db_default="", help_text="why the last try failed")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [
            models.Index(fields=["due_at"], name="model_call_free", condition=Q(owner_id=None)),
            models.Index(fields=["owner_id"], name="model_call_owned", condition=Q(owner_id__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"request of wait {self.wait_id}"
