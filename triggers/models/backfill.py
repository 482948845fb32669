from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from .schedule import Schedule


class Backfill(models.Model):
    """A request to fire a schedule for a range of past nominal times."""

    class Status(models.TextChoices):
        RUNNING = "running", "running"
        DONE = "done", "done"
        CANCELLED = "cancelled", "cancelled"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    schedule = models.ForeignKey(Schedule, models.CASCADE, related_name="backfills")
    start = models.DateTimeField(help_text="the first instant of the range (UTC)")
    end = models.DateTimeField(help_text="the instant before which the range ends (UTC)")
    again = models.BooleanField(default=False, help_text="also times that have fired already")
    at_once = models.PositiveSmallIntegerField(default=1, help_text="how many of its runs may run at once")
    priority = models.SmallIntegerField(help_text="priority of its runs; smaller is sooner")
    status = models.TextField(choices=Status, default=Status.RUNNING)
    position = models.DateTimeField(help_text="nominal times before this (UTC) have been taken")
    total = models.PositiveIntegerField(help_text="nominal times of the range, as counted at its start and at its end")
    by = models.TextField()
    created_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True, help_text="when the last of its runs had ended")

    class Meta:
        constraints = [
            models.CheckConstraint(name="backfill_range", condition=Q(start__lt=F("end"))),
            models.CheckConstraint(name="backfill_at_once", condition=Q(at_once__gte=1, at_once__lte=1000)),
            models.CheckConstraint(
                name="backfill_status_known", condition=Q(status__in=["running", "done", "cancelled"])
            ),
            # A cancelled backfill has not ended while its runs continue.
            models.CheckConstraint(
                name="backfill_done_has_ended",
                condition=Q(status="running", ended_at=None)
                | Q(status="done", ended_at__isnull=False)
                | Q(status="cancelled"),
            ),
        ]
        indexes = [models.Index(fields=["id"], name="backfill_underway", condition=Q(ended_at=None))]

    def __str__(self) -> str:
        return f"{self.schedule} from {self.start} to {self.end}"


class BackfillTick(models.Model):
    """One nominal time of a backfill."""

    class Outcome(models.TextChoices):
        OPEN = "open", "its run has not ended"
        THERE = "there", "it had fired already"
        SUCCEEDED = "succeeded", "its run succeeded"
        FAILED = "failed", "its run failed"
        CANCELLED = "cancelled", "it was cancelled"
        REFUSED = "refused", "it became no run; its event's decision gives the reason"

    backfill = models.ForeignKey(Backfill, models.CASCADE, related_name="ticks", db_index=False)
    nominal = models.DateTimeField()
    event_id = models.UUIDField()
    outcome = models.TextField(choices=Outcome)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["backfill", "nominal"], name="backfill_tick_once"),
            models.CheckConstraint(
                name="backfill_tick_outcome_known",
                condition=Q(outcome__in=["open", "there", "succeeded", "failed", "cancelled", "refused"]),
            ),
        ]
        indexes = [
            models.Index(fields=["backfill"], name="backfill_tick_open", condition=Q(outcome="open")),
            models.Index(fields=["event_id"], name="backfill_tick_by_event"),
        ]

    def __str__(self) -> str:
        return f"{self.nominal} of {self.backfill_id}"
