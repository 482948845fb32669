from datetime import timedelta

from django.db import models

from .source import Source


class CalendarEntry(models.Model):
    """An event of a calendar, a series, or an occurrence that differs from its series, as it was when it was last recorded. Written with
    its events; the next look is compared with it. Deleted a day after it is over."""

    KEPT = timedelta(days=1)  # what is over

    source = models.ForeignKey(Source, models.CASCADE, related_name="calendar_entries", db_index=False)
    key = models.TextField(help_text="digest of its id in the calendar")
    series = models.TextField(db_default="", help_text="key of its series; empty: it is of none")
    digest = models.TextField(help_text="of what is compared")
    data = models.JSONField(help_text="as in its events")
    over_at = models.DateTimeField(null=True, help_text="when its last occurrence ends; null: not known")

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["source", "key"], name="calendar_entry_once")]

    def __str__(self) -> str:
        return f"{self.key} of {self.source_id}"
