from django.db import models
from django.db.models.functions import Now


class Notification(models.Model):
    """A message of an agent, or of Wakeful itself, to a person."""

    class Urgency(models.TextChoices):
        LOW = "low"
        NORMAL = "normal"
        HIGH = "high"

    sender = models.TextField(help_text="the agent's name, or the trigger's slug for Wakeful's own alerts")
    run_id = models.UUIDField(null=True)
    urgency = models.TextField(choices=Urgency, default=Urgency.NORMAL)
    text = models.TextField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [models.Index(fields=["-created_at"], name="notification_newest")]
        constraints = [
            models.CheckConstraint(
                name="notification_urgency_known", condition=models.Q(urgency__in=["low", "normal", "high"])
            )
        ]

    def __str__(self) -> str:
        return self.text[:80]
