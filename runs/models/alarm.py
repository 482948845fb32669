from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from runs.states import Severity


class Alarm(models.Model):
    """A problem, from its beginning to its end: one open row per name, reported once at either end."""

    Severity = Severity

    name = models.TextField(help_text='what is wrong, such as "no-worker" or "trigger-paused:invoices"')
    severity = models.TextField(choices=Severity)
    text = models.TextField()
    remedy = models.TextField(default="")
    began_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["-began_at"], name="alarm_newest")]
        constraints = [
            models.UniqueConstraint(fields=["name"], name="alarm_open_once", condition=Q(ended_at=None)),
            models.CheckConstraint(name="alarm_severity_known", condition=Q(severity__in=["bad", "warning"])),
        ]

    def __str__(self) -> str:
        return self.name
