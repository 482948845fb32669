"""API tokens."""

from django.db import models
from django.db.models.functions import Now

from triggers.models.source import Source


class ApiToken(models.Model):
    """A bearer token, stored as its SHA-256; each has its own source."""

    name = models.CharField(max_length=100, unique=True)
    hash = models.CharField(max_length=64, unique=True, editable=False)
    permissions = models.JSONField(
        default=list, blank=True, help_text='Django permissions such as "runs.requeue_run"; ["*"] is all'
    )
    source = models.OneToOneField(Source, models.PROTECT, related_name="token")
    created_at = models.DateTimeField(db_default=Now())
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "API token"

    def __str__(self) -> str:
        return self.name
