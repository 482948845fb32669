from django.db import models
from django.db.models.functions import Now


class OutboxMessage(models.Model):
    """A message that leaves a room or the database. Its row is deleted when it has left."""

    topic = models.TextField()
    key = models.TextField(default="")
    payload = models.JSONField()
    available_at = models.DateTimeField(db_default=Now())
    attempts = models.PositiveIntegerField(default=0)
    last_error = models.TextField(default="")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [
            models.Index(fields=["topic", "available_at", "id"], name="outbox_due"),
            models.Index(fields=["available_at", "id"], name="outbox_available"),
            models.Index(fields=["key"], name="outbox_wakeup", condition=models.Q(topic="wakeup")),
            models.Index(fields=["key"], name="outbox_calendar", condition=models.Q(topic="calendar")),
        ]

    def __str__(self) -> str:
        return f"{self.topic} {self.key}"
