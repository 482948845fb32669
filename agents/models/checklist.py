from datetime import timedelta

from django.db import models
from django.db.models.functions import Now


class Checklist(models.Model):
    """The items that an agent looks at, each at its own interval. It belongs to an agent, or to one of its triggers."""

    agent = models.TextField()
    trigger = models.TextField(
        default="",
        blank=True,
        help_text="slug of the only trigger that uses it; empty: all triggers without a checklist of their own",
    )
    silenced_until = models.DateTimeField(null=True, help_text="time before which none of its items is due")
    revision = models.PositiveIntegerField(default=0, help_text="number of its last revision; edits compare it")
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ("view", "change")
        constraints = [models.UniqueConstraint(fields=["agent", "trigger"], name="checklist_of_agent")]

    def __str__(self) -> str:
        return f"{self.agent} ({self.trigger})" if self.trigger else self.agent


class ChecklistItem(models.Model):
    """Something to look at, and how the last look ended."""

    class Outcome(models.TextChoices):
        OK = "ok", "nothing to say"
        NEWS = "news", "something to say"
        FAILED = "failed", "could not be checked"

    checklist = models.ForeignKey(Checklist, models.CASCADE, related_name="items")
    text = models.TextField(help_text="what to look at, in words for the agent")
    every = models.DurationField(null=True, help_text="its own interval; null: at each run")
    position = models.PositiveIntegerField()
    paused_at = models.DateTimeField(null=True)
    silenced_until = models.DateTimeField(null=True)
    due_at = models.DateTimeField(db_default=Now(), help_text="time before which the item is not looked at")
    last_outcome = models.TextField(choices=Outcome, default="", blank=True)
    last_text = models.TextField(default="", blank=True)
    last_checked_at = models.DateTimeField(null=True)
    last_run_id = models.UUIDField(null=True)
    held_by = models.UUIDField(null=True, help_text="the run that looks at it; it counts while that run is live")
    failures_in_a_row = models.PositiveIntegerField(default=0)

    class Meta:
        default_permissions = ()
        ordering = ["position", "id"]
        constraints = [
            models.CheckConstraint(
                name="checklist_item_every", condition=models.Q(every=None) | models.Q(every__gt=timedelta())
            )
        ]

    def __str__(self) -> str:
        return self.text[:80]


class ChecklistRevision(models.Model):
    """The definition of a checklist after an edit, and who edited it."""

    checklist = models.ForeignKey(Checklist, models.CASCADE, related_name="revisions", db_index=False)
    number = models.PositiveIntegerField()
    by = models.TextField()
    at = models.DateTimeField(db_default=Now())
    definition = models.JSONField(help_text="its items and when it is silenced; see agents.checklists.history")

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["checklist", "number"], name="checklist_revision_once")]
        ordering = ["-number"]

    def __str__(self) -> str:
        return f"revision {self.number} of checklist {self.checklist_id}"
