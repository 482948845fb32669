from django.db import models
from django.db.models import Q


class Queue(models.Model):
    """The operator's settings of a queue of runs; a queue without a row has no limit and is not paused."""

    EVERY = "*"  # the row that pauses all queues at once

    name = models.TextField(primary_key=True)
    max_running = models.PositiveIntegerField(
        null=True, blank=True, help_text="most runs at the same time, over all workers"
    )
    paused_at = models.DateTimeField(null=True, editable=False)
    paused_reason = models.TextField(default="", editable=False)
    paused_by = models.TextField(default="", editable=False)

    class Meta:
        permissions = [("pause_queue", "Can pause and resume queues")]
        constraints = [
            models.CheckConstraint(name="queue_max_running", condition=Q(max_running=None) | Q(max_running__gte=1)),
            models.CheckConstraint(name="queue_every_has_no_limit", condition=~Q(name="*") | Q(max_running=None)),
        ]

    def __str__(self) -> str:
        return self.name
