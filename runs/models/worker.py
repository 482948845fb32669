import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now


class Worker(models.Model):
    """An incarnation of a process; a restart is a new row, so that no process inherits the lease of a dead one."""

    class Kind(models.TextChoices):
        WORKER = "worker"
        DISPATCHER = "dispatcher"
        BEAT = "beat"
        SOURCES = "sources"
        WEB = "web"
        CALLER = "caller"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.TextField(choices=Kind)
    host = models.TextField()
    pid = models.IntegerField()
    version = models.TextField()
    concurrency = models.PositiveIntegerField(default=0, help_text="children that execute runs")
    agents = ArrayField(models.TextField(), default=list, help_text="agents whose code this worker has")
    durable_agents = ArrayField(models.TextField(), db_default=[], help_text="those of them whose code is durable")
    queues = ArrayField(models.TextField(), default=list)
    started_at = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True, help_text="it counts as dead if it is not seen again until then")
    draining_at = models.DateTimeField(null=True)
    stopped_at = models.DateTimeField(null=True)
    stopped_reason = models.TextField(default="")
    troubles = models.JSONField(null=True, help_text="what this process cannot do now: name → since, error")

    class Meta:
        indexes = [
            # Without `seen_at` and `expires_at`: with them in an index, a renewal could not be written in place.
            models.Index(fields=["kind"], name="worker_open", condition=models.Q(stopped_at=None))
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.host}:{self.pid}"
