import uuid

from django.db import models
from django.db.models.functions import Now

from .source import Source


class PushChannel(models.Model):
    """The channel of a provider to a source that is polled. It carries no data: what it brings is a hint to poll now."""

    source = models.OneToOneField(Source, models.CASCADE, primary_key=True, related_name="push_channel")
    id = models.UUIDField(unique=True, default=uuid.uuid4, help_text="as the provider sends it")
    digest = models.TextField(help_text="SHA-256 of the token that the provider sends")
    ends_at = models.DateTimeField(help_text="when it ends at the provider")
    hinted_at = models.DateTimeField(null=True, help_text="when the provider has sent something, the last time")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"push channel of {self.source_id}"
