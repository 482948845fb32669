from django.db import models

from .trigger import Trigger


class Gate(models.Model):
    """Counts of the answers of a trigger's gate, and the state that its last successful run kept. One row for each
    trigger: single quiet answers are decisions, which retention deletes with their events.
    """

    class Answer(models.TextChoices):
        QUIET = "quiet", "nothing to do"
        FIRED = "fired", "a run began"
        FAILED = "failed", "it raised or took too long"

    trigger = models.OneToOneField(Trigger, models.CASCADE, primary_key=True)
    agent = models.TextField(help_text="whose gate; another agent's gate begins without state and counts")
    state = models.JSONField(null=True)
    is_tainted = models.BooleanField(db_default=False, help_text="the gate that gave the state had seen untrusted data")
    revision = models.PositiveBigIntegerField(default=0, help_text="rises with each state that is kept")
    quiet = models.PositiveBigIntegerField(default=0)
    fired = models.PositiveBigIntegerField(default=0)
    failed = models.PositiveBigIntegerField(default=0)
    in_a_row = models.PositiveBigIntegerField(default=0, help_text="answers in a row like the last one")
    last_answer = models.TextField(choices=Answer)
    last_reason = models.TextField(default="")
    last_at = models.DateTimeField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"gate of {self.agent}: {self.last_answer}"
