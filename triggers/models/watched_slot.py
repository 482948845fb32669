from django.db import models

from .source import Source


class WatchedSlot(models.Model):
    """The replication slot of a source, as a dispatcher last saw it at the source's database."""

    source = models.OneToOneField(Source, models.CASCADE, primary_key=True, related_name="watched_slot")
    looked_at = models.DateTimeField(help_text="when a dispatcher last began to look")
    seen_at = models.DateTimeField(null=True, help_text="when the database last answered")
    slot = models.TextField(default="", db_default="")
    exists = models.BooleanField(default=False, db_default=False)
    reader = models.TextField(default="", db_default="", help_text="empty: nothing reads it")
    unread_since = models.DateTimeField(null=True, help_text="nothing was seen to read it since then")
    wal_status = models.TextField(default="", db_default="")
    retained = models.BigIntegerField(null=True, help_text="bytes of WAL that the server keeps for it")
    behind = models.BigIntegerField(null=True, help_text="bytes of WAL behind the last confirmed place")
    safe = models.BigIntegerField(null=True, help_text="bytes until the server may give it up; null: no limit")
    error = models.TextField(default="", db_default="", help_text="of the last look")
    problem = models.TextField(default="", db_default="")
    remedy = models.TextField(default="", db_default="")
    is_bad = models.BooleanField(default=False, db_default=False)
    problem_since = models.DateTimeField(null=True)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"slot of {self.source_id}"
