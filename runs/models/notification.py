from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.text import Truncator

from agents.kernel.redaction import shown


class Notification(models.Model):
    """A message of an agent, or of Wakeful itself, to people. `planned_at`: when its deliveries were written."""

    class Urgency(models.TextChoices):
        LOW = "low"
        NORMAL = "normal"
        HIGH = "high"

    sender = models.TextField(help_text="the agent's name, or the trigger's slug for Wakeful's own alerts")
    run_id = models.UUIDField(null=True)
    urgency = models.TextField(choices=Urgency, default=Urgency.NORMAL)
    text = models.TextField()
    # A process of the version before writes rows without these.
    topic = models.TextField(
        default="", db_default="", help_text="what it is about; the same text about it is sent once"
    )
    link = models.TextField(
        default="",
        db_default="",
        help_text="an address, or run:<id>, approval:<id>, alarm:<id>, incident:<id> for pages of this site",
    )
    to = ArrayField(
        models.TextField(),
        default=list,
        db_default=[],
        help_text="names of recipients and groups; empty: those who get everything",
    )
    created_at = models.DateTimeField(db_default=Now())
    planned_at = models.DateTimeField(null=True, help_text="when its deliveries were written")

    class Meta:
        indexes = [
            models.Index(fields=["-created_at"], name="notification_newest"),
            models.Index(fields=["created_at"], name="notification_unplanned", condition=Q(planned_at=None)),
            models.Index(fields=["run_id"], name="notification_urgent_of_run", condition=Q(urgency="high")),
            models.Index(fields=["topic", "-id"], name="notification_by_topic", condition=~Q(topic="")),
        ]
        constraints = [
            models.CheckConstraint(
                name="notification_urgency_known", condition=Q(urgency__in=["low", "normal", "high"])
            )
        ]

    def __str__(self) -> str:
        return Truncator(shown(self.text)).chars(80)
