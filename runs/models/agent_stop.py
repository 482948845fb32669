from django.db import models
from django.db.models.functions import Now


class AgentStop(models.Model):
    """An operator has stopped an agent: none of its runs starts, and those that were running wait in their queue. The row is
    deleted when it is started again."""

    EVERY = "*"  # the row that stops all agents at once

    agent = models.TextField(primary_key=True)
    stopped_at = models.DateTimeField(db_default=Now(), editable=False)
    stopped_by = models.TextField(editable=False)
    reason = models.TextField(default="", editable=False)

    class Meta:
        verbose_name = "agent"  # its pages are those of all agents
        verbose_name_plural = "agents"
        permissions = [("stop_agent", "Can stop and start agents")]

    def __str__(self) -> str:
        return self.agent
