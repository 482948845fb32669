from django.contrib.postgres.fields import ArrayField
from django.db import models


class IssueTriage(models.Model):
    """The labels and priority that the rules or a model give a GitHub issue, as of its newest delivery."""

    class Priority(models.TextChoices):
        URGENT = "urgent"
        HIGH = "high"
        NORMAL = "normal"
        LOW = "low"

    repository = models.TextField()
    number = models.PositiveIntegerField()
    title = models.TextField()
    url = models.TextField(default="")
    labels = ArrayField(models.TextField(), default=list)
    priority = models.TextField(choices=Priority, default=Priority.NORMAL)
    duplicate_of = models.PositiveIntegerField(null=True)
    triaged_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["repository", "number"], name="library_issue_once")]

    def __str__(self) -> str:
        return f"{self.repository}#{self.number}"
