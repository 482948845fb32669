from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from uuid_utils.compat import uuid7


class Replay(models.Model):
    """A request to dispatch recorded events again, at a rate. Its id is the replay id of its runs and decisions, so that
    each event is replayed once."""

    class Status(models.TextChoices):
        RUNNING = "running", "running"
        PAUSED = "paused", "paused"
        CANCELLING = "cancelling", "cancelling"
        CANCELLED = "cancelled", "cancelled"
        DONE = "done", "done"

    UNDERWAY = (Status.RUNNING, Status.CANCELLING)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    search = models.JSONField(default=dict, help_text="which events: source, types, subject, fields of the data")
    start = models.DateTimeField(help_text="the first instant of the range (UTC)")
    end = models.DateTimeField(help_text="the instant before which the range ends (UTC)")
    # No foreign keys: deleting a trigger must not delete the history of replays.
    triggers = ArrayField(models.UUIDField(), default=list, help_text="only to these; empty: all that match")
    rate = models.FloatField(help_text="events per second")
    priority = models.SmallIntegerField(help_text="priority of its runs; smaller is sooner")
    status = models.TextField(choices=Status, default=Status.RUNNING)
    total = models.PositiveIntegerField(help_text="events of the range, as counted at its start")
    position = models.UUIDField(help_text="of versions that went by ids")
    passed = models.BigIntegerField(null=True, help_text="events up to this `seq` have been looked at; null: none")
    until = models.BigIntegerField(null=True, help_text="the `seq` at which it ends; null: the newest one")
    dispatched = models.PositiveIntegerField(db_default=0, help_text="events given to the dispatcher")
    without_payload = models.PositiveIntegerField(
        db_default=0, help_text="skipped: retention or erasure took the payload"
    )
    unheard = models.PositiveIntegerField(db_default=0, help_text="skipped: none of the triggers listens to the event")
    due_at = models.DateTimeField(db_default=Now(), help_text="when the next event is due, by the rate")
    look_at = models.DateTimeField(db_default=Now(), help_text="when the dispatcher takes the next events")
    failures = models.IntegerField(db_default=0, help_text="in a row")
    error = models.TextField(db_default="", help_text="error of the last failure")
    by = models.TextField()
    created_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(name="replay_range", condition=Q(start__lt=F("end"))),
            models.CheckConstraint(name="replay_rate", condition=Q(rate__gt=0, rate__lte=1000)),
            models.CheckConstraint(name="replay_priority", condition=Q(priority__gte=0, priority__lte=9)),
            models.CheckConstraint(
                name="replay_status_known",
                condition=Q(status__in=["running", "paused", "cancelling"], ended_at=None)
                | Q(status__in=["cancelled", "done"], ended_at__isnull=False),
            ),
        ]
        indexes = [
            models.Index(fields=["look_at"], name="replay_underway", condition=Q(status__in=["running", "cancelling"]))
        ]

    def __str__(self) -> str:
        return f"replay of {self.total} event{'' if self.total == 1 else 's'}"

    @property
    def taken(self) -> int:
        return self.dispatched + self.without_payload + self.unheard
