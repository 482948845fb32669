from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from .trigger import Trigger


class Offer(models.Model):
    """A request to dispatch decisions of a trigger again, or to drop them, in pieces. The row is deleted when none is left."""

    trigger = models.ForeignKey(Trigger, models.CASCADE, db_index=False)
    outcome = models.TextField(help_text="of the decisions: held or error")
    drop = models.BooleanField(default=False, help_text="they are dropped instead")
    since = models.DateTimeField(null=True, help_text="decisions from then on; null: all")
    after = models.BigIntegerField(default=0, help_text="id of the last decision that was done")
    until = models.BigIntegerField(
        null=True,
        help_text="id of the last decision to do; null: until none is left. Of what is dropped, only while the trigger is paused",
    )
    by = models.TextField(help_text="who requested it: a user, a token, a command")
    created_at = models.DateTimeField(db_default=Now())
    moved_at = models.DateTimeField(db_default=Now(), help_text="one that failed is put off until then")
    failures = models.IntegerField(db_default=0, help_text="in a row")
    error = models.TextField(db_default="", help_text="error of the last failure")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["trigger", "outcome"], name="offer_once"),
            models.CheckConstraint(name="offer_outcome_known", condition=Q(outcome__in=["held", "error"])),
        ]

    def __str__(self) -> str:
        return f"{self.outcome} of {self.trigger_id}"
