from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from .event import Event
from .trigger import Trigger


class Decision(models.Model):
    """The reason why an event that matched a trigger started no run of its own, or started it later."""

    class Outcome(models.TextChoices):
        OVERLAP = "overlap", "a run of its key was live"
        RATE = "rate", "its key has had as many runs as its rate allows"
        JOINED = "joined", "a run that had not started took it along"
        COLLECTED = "collected", "its window collects events for one run"
        HELD = "held", "the trigger is paused; offered on resume"
        RESUMED = "resumed", "was held or ended in an error, then ran"
        DROPPED = "dropped", "was held or backfilled, then given up by a person"
        DISABLED = "disabled", "it was meant for a trigger that is disabled"
        LOOP = "loop", "its causal chain is too deep, or goes round too fast"
        QUIET = "quiet", "its gate was quiet"
        ERROR = "error", "matching or admitting it failed"

    event = models.ForeignKey(Event, models.CASCADE, related_name="decisions", db_index=False)
    trigger = models.ForeignKey(Trigger, models.CASCADE, related_name="decisions", db_index=False)
    replay_id = models.UUIDField()
    outcome = models.TextField(choices=Outcome)
    reason = models.TextField(default="")
    run_id = models.UUIDField(
        null=True, help_text="the run it concerns: the live run, or the run that the event became"
    )
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["event", "trigger", "replay_id"], name="decision_once")]
        indexes = [
            models.Index(fields=["trigger", "event"], name="decision_by_trigger"),
            models.Index(fields=["trigger"], name="decision_held", condition=Q(outcome="held")),
            models.Index(
                fields=["trigger", "outcome", "id"],
                name="decision_to_offer",
                condition=Q(outcome__in=["held", "error"]),
            ),
            models.Index(fields=["trigger", "created_at"], name="decision_errors", condition=Q(outcome="error")),
        ]

    def __str__(self) -> str:
        return f"{self.outcome}: {self.event_id} for {self.trigger_id}"
