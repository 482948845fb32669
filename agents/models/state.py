from django.db import models
from django.db.models.functions import Now


class AgentState(models.Model):
    """A named value that an agent keeps between runs; written by compare-and-set on `revision`."""

    agent = models.TextField()
    name = models.TextField()
    value = models.JSONField(null=True)
    is_tainted = models.BooleanField(db_default=False, help_text="set by a run that had seen untrusted data")
    revision = models.PositiveBigIntegerField(default=1)
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "name"], name="agent_state_name")]

    def __str__(self) -> str:
        return f"{self.agent}.{self.name}"
