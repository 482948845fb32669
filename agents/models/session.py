from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class Session(models.Model):
    """A conversation that runs share by its name. `run_id` holds it: that run takes a turn, and while it is live no other does."""

    class Overflow(models.TextChoices):
        DROP = "drop", "the oldest turns are dropped"
        SUMMARISE = "summarise", "a model summarises the older half"

    name = models.TextField(unique=True)
    run_id = models.UUIDField(null=True, help_text="the run that takes a turn; if it is not live, the session is free")
    most_turns = models.PositiveIntegerField(db_default=50, help_text="limit of turns that the next run gets")
    most_characters = models.PositiveIntegerField(
        db_default=60_000, help_text="limit of characters of these turns as JSON"
    )
    overflow = models.TextField(
        choices=Overflow, db_default=Overflow.DROP, help_text="what happens to turns over these limits"
    )
    summary = models.TextField(
        db_default="", blank=True, help_text="summary of earlier turns; the next run gets it before the others"
    )
    is_summary_tainted = models.BooleanField(
        db_default=False, help_text="written by a run that had seen untrusted data"
    )
    last_number = models.PositiveBigIntegerField(db_default=0, help_text="number of its newest turn")
    revision = models.PositiveBigIntegerField(db_default=0, help_text="number of its last edit; edits compare it")
    used_at = models.DateTimeField(db_default=Now(), help_text="when a run last held it")

    class Meta:
        default_permissions = ("view", "change")
        constraints = [
            models.CheckConstraint(name="session_overflow_known", condition=Q(overflow__in=["drop", "summarise"])),
            models.CheckConstraint(name="session_keeps_turns", condition=Q(most_turns__gte=1, most_characters__gte=1)),
        ]
        indexes = [models.Index(fields=["run_id"], name="session_of_run", condition=Q(run_id__isnull=False))]

    def __str__(self) -> str:
        return self.name


class SessionTurn(models.Model):
    """The messages of one call of run.llm, from its prompt to its answer. Without messages the turn is no longer given
    to runs: it was dropped or summarised, and the row only records which run took it.
    """

    session = models.ForeignKey(Session, models.CASCADE, related_name="turns", db_index=False)
    number = models.PositiveBigIntegerField()
    run_id = models.UUIDField(help_text="the run that took it")
    agent = models.TextField()
    messages = models.JSONField(null=True)
    characters = models.PositiveIntegerField(help_text="length of its messages as JSON")
    is_tainted = models.BooleanField(db_default=False, help_text="its run had seen untrusted data")
    is_summarised = models.BooleanField(db_default=False, help_text="the summary of the session includes it")
    at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["session", "number"], name="session_turn_once")]
        indexes = [
            models.Index(fields=["run_id"], name="session_turn_of_run"),
            models.Index(fields=["at"], name="session_turn_by_age"),
            models.Index(fields=["session", "number"], name="session_turn_kept", condition=Q(messages__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"turn {self.number} of session {self.session_id}"
