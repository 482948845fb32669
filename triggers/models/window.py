from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from .trigger import Trigger


class Window(models.Model):
    """Events of one trigger and key that wait to become one run: a debounce, or a batch."""

    trigger = models.ForeignKey(Trigger, models.CASCADE, related_name="windows", db_index=False)
    key = models.TextField(help_text="<trigger uuid>:<value>")
    replay_id = models.UUIDField()
    event_ids = ArrayField(models.UUIDField(), help_text="in order of dispatch; the first gives the run its id")
    root_id = models.UUIDField()
    depth = models.SmallIntegerField()
    chain = ArrayField(models.TextField(), db_default=[])
    is_tainted = models.BooleanField(db_default=False, help_text="one of its events is")
    input = models.JSONField(null=True, help_text="that of the newest event")
    reports = models.JSONField(null=True, help_text="that people asked for when they fired the trigger")
    opened_at = models.DateTimeField(db_default=Now())
    due_at = models.DateTimeField(help_text="when it becomes a run, unless another event moves that")
    closes_at = models.DateTimeField(
        null=True, help_text="when it becomes a run at the latest; null: no event moves it"
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["trigger", "key", "replay_id"], name="window_one_open")]
        indexes = [models.Index(fields=["due_at"], name="window_due")]

    def __str__(self) -> str:
        return f"{len(self.event_ids)} events of {self.key}"


class RateUse(models.Model):
    """The latest starts of runs of a key, as many as its trigger's rate counts."""

    key = models.TextField(primary_key=True, help_text="<trigger uuid>:<value>")
    starts = ArrayField(models.DateTimeField(), help_text="ascending; a delayed run's is in the future")
    written_at = models.DateTimeField(
        null=True, help_text="by the database's clock, which may since have been set back"
    )

    def __str__(self) -> str:
        return f"{len(self.starts)} starts of {self.key}"
