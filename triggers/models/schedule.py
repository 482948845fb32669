from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django_celery_beat.models import PeriodicTask

from .trigger import Trigger


class Schedule(models.Model):
    """When a PeriodicTask row fires next. One with a trigger wakes an agent through an event; one without is the
    user's ordinary periodic task. Every PeriodicTask has one: row triggers on its tables see to it."""

    class CatchUp(models.TextChoices):
        LATEST = "latest", "only the latest missed fire"
        SKIP = "skip", "none of the missed fires"
        ALL = "all", "every missed fire"

    task = models.OneToOneField(PeriodicTask, models.CASCADE, related_name="wakeful")
    trigger = models.ForeignKey(Trigger, models.CASCADE, null=True, blank=True, related_name="schedules")
    catch_up = models.TextField(choices=CatchUp, default=CatchUp.LATEST)
    next_fire_at = models.DateTimeField(null=True, help_text="the next nominal time (UTC); null: it will not fire")
    last_fire_at = models.DateTimeField(null=True, help_text="the last nominal time accounted for (UTC)")
    anchor_at = models.DateTimeField(null=True, help_text="an interval's nominal times are anchor + k × every")
    spec = models.TextField(
        default="", help_text="what next_fire_at was computed from; a change of it moves the anchor"
    )
    stale = models.BooleanField(default=True, help_text="its row was edited: recompute before firing")
    edited_at = models.DateTimeField(
        db_default=Now(), help_text="the last edit of its rule; fires are counted from there"
    )
    problem = models.TextField(default="", blank=True, help_text="why it cannot fire, until its rule is edited")

    class Meta:
        constraints = [
            models.CheckConstraint(name="schedule_catch_up_known", condition=Q(catch_up__in=["latest", "skip", "all"]))
        ]
        indexes = [
            models.Index(fields=["next_fire_at"], name="schedule_due", condition=Q(next_fire_at__isnull=False)),
            models.Index(fields=["id"], name="schedule_stale", condition=Q(stale=True)),
        ]

    def __str__(self) -> str:
        return str(self.task.name)
