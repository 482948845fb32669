from django.db import models
from django.db.models.functions import Now

from .source import Source


class WatchedTable(models.Model):
    """The triggers of a source that watches a table: whether they are there, and what they have missed."""

    source = models.OneToOneField(Source, models.CASCADE, primary_key=True, related_name="watched_table")
    relations = models.JSONField(
        default=dict, help_text="the tables that have them, itself and its partitions, and the names of their triggers"
    )
    kept_at = models.DateTimeField(null=True, help_text="when they were last made or found as they should be")
    error = models.TextField(default="", db_default="", help_text="why they are not as they should be")
    remedy = models.TextField(default="", db_default="")
    failing_since = models.DateTimeField(null=True)
    gap = models.TextField(default="", db_default="", help_text="which changes may be no events")
    gap_at = models.DateTimeField(null=True)
    # A sweep goes on at `position`, a primary key; null: none is under way.
    sweep_wanted = models.BooleanField(default=False, db_default=False, help_text="requested by a person")
    sweep_began_at = models.DateTimeField(null=True)
    position = models.JSONField(null=True)
    digested = models.JSONField(
        default=list, help_text="the columns of the digests; with others, a sweep begins from nothing"
    )
    swept_at = models.DateTimeField(null=True, help_text="the beginning of the last sweep that came to its end")
    found = models.JSONField(
        default=dict, help_text="what the current sweep has found: operation → number, and the first keys"
    )
    missed = models.TextField(default="", db_default="", help_text="what the last sweep has found")
    missed_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"table of {self.source_id}"


class SweptRow(models.Model):
    """A row of a watched table as the last sweep saw it: its primary key, and a digest of its watched columns."""

    pk = models.CompositePrimaryKey("source_id", "key")
    source = models.ForeignKey(Source, models.CASCADE, db_index=False, related_name="+")
    key = models.TextField()
    primary_key = models.JSONField()
    digest = models.UUIDField()
    passes = models.BooleanField(help_text="did it meet the condition?")
    seen_at = models.DateTimeField(help_text="the beginning of the sweep that saw it last")

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.key} of {self.source_id}"
