"""The history of a schedule: nominal times that did not fire, and its definitions before each edit."""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from triggers.models.schedule import Schedule


class Skip(models.Model):
    """Consecutive nominal times of a schedule that did not fire, for one reason."""

    class Reason(models.TextChoices):
        MISSED = "missed", "they were missed, and its catch-up policy does not fire them"
        WINDOW = "window", "they were missed too long ago for its catch-up window"
        MOST = "most", "more were missed than it may catch up"
        INACTIVE = "inactive", "they are outside its active hours"
        EXCLUDED = "excluded", "an exclusion calendar names their day"
        PAUSED = "paused", "it was switched off"
        PACED = "paced", "its agent had set another pace"
        ELSEWHERE = "elsewhere", "another scheduler had fired it meanwhile"
        REFUSED = "refused", "it could not be fired"

    # No constraint: Beat may write one while its schedule is being deleted. Retention deletes orphans.
    schedule = models.ForeignKey(Schedule, models.CASCADE, related_name="skips", db_index=False, db_constraint=False)
    reason = models.TextField(choices=Reason)
    first = models.DateTimeField(help_text="the first nominal time (UTC)")
    last = models.DateTimeField(help_text="the last nominal time (UTC)")
    count = models.PositiveIntegerField(null=True, help_text="how many; null: too many to count")
    detail = models.TextField(db_default="", default="", blank=True, help_text="such as the name of the holiday")
    created_at = models.DateTimeField(db_default=Now(), help_text="when the skip was decided")

    class Meta:
        constraints = [
            models.CheckConstraint(name="skip_in_order", condition=Q(last__gte=F("first"))),
            models.UniqueConstraint(fields=["schedule", "last"], name="skip_once"),
        ]
        indexes = [
            models.Index(fields=["created_at"], name="skip_by_age"),
            # Fires that were expected and did not happen, among the many that are closed or paused on purpose.
            models.Index(
                fields=["created_at"],
                name="skip_missed",
                condition=Q(reason__in=["missed", "window", "most", "refused"]),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.schedule_id}: {self.reason} from {self.first} to {self.last}"


class Revision(models.Model):
    """The definition of a schedule up to an edit. Database triggers write it, so that no edit is missed; the current
    definition is in the rows themselves."""

    # No constraint: deleting a schedule also writes a revision. Retention deletes orphans.
    schedule = models.ForeignKey(
        Schedule, models.CASCADE, related_name="revisions", db_index=False, db_constraint=False
    )
    until = models.DateTimeField(help_text="the edit that ended it (UTC)")
    by = models.TextField(help_text="the database user and application that edited it")
    state = models.JSONField(help_text="the columns as they were; see triggers.schedules.definition")

    class Meta:
        indexes = [
            models.Index(fields=["schedule", "until"], name="revision_by_schedule"),
            models.Index(fields=["until"], name="revision_by_age"),
        ]

    def __str__(self) -> str:
        return f"{self.schedule_id} until {self.until}"
