from django.db import models
from django.db.models.functions import Now


class ProcessedEvent(models.Model):
    """The ledger: this consumer has committed the effects of this event."""

    pk = models.CompositePrimaryKey("event_id", "consumer", "replay_id")
    event_id = models.UUIDField()
    consumer = models.TextField(help_text="the trigger's slug")
    replay_id = models.UUIDField()
    run_id = models.UUIDField()
    processed_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.event_id} by {self.consumer}"
