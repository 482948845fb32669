from datetime import datetime, timedelta

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from agents.kernel.redaction import shown

from .notification import Notification


class Incident(models.Model):
    """The failures of one thing that have one cause. It is *noticed* until there are enough of them without a success between;
    then it is *open*, until the thing succeeds: *closed*."""

    class Kind(models.TextChoices):
        TRIGGER = "trigger", "runs of a trigger"
        AGENT = "agent", "runs of an agent, without a trigger"
        ITEM = "item", "an item of a checklist"
        SOURCE = "source", "deliveries of a source"

    class Told(models.TextChoices):
        NOTHING = ""
        OPEN = "open"
        CLOSED = "closed"

    kind = models.TextField(choices=Kind)
    subject = models.TextField(
        help_text="slug of the trigger or source, name of the agent, or id of the item that fails"
    )
    name = models.TextField(help_text="display name of the subject")
    agent = models.TextField(default="")
    fingerprint = models.TextField(help_text="hash of the cause")
    cause = models.TextField(help_text="the error without numbers, ids and quoted values")
    error = models.TextField(default="", help_text="error of the last failure")
    urgency = models.TextField(choices=Notification.Urgency, default=Notification.Urgency.NORMAL)

    count = models.PositiveIntegerField(default=0, help_text="failures in all")
    in_a_row = models.PositiveIntegerField(default=0, help_text="failures since the last success of the subject")
    first_at = models.DateTimeField(db_default=Now())
    last_at = models.DateTimeField(db_default=Now())
    first_run_id = models.UUIDField(null=True)
    last_run_id = models.UUIDField(null=True)

    opened_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)
    closed_by = models.TextField(default="", help_text="who closed it; empty: a success of the subject")
    reopened = models.PositiveIntegerField(default=0, help_text="how often it opened again soon after it was closed")

    told = models.TextField(choices=Told, default=Told.NOTHING, blank=True, help_text="state in the last notification")
    told_at = models.DateTimeField(null=True)
    tell_at = models.DateTimeField(null=True, help_text="time of the next notification")

    class Meta:
        default_permissions = ("view",)
        permissions = [("close_incident", "Can close incidents")]
        indexes = [
            models.Index(fields=["kind", "subject"], name="incident_failing", condition=Q(in_a_row__gt=0)),
            models.Index(
                fields=["kind", "subject", "closed_at"], name="incident_closed", condition=Q(closed_at__isnull=False)
            ),
            models.Index(fields=["-id"], name="incident_open", condition=Q(opened_at__isnull=False, closed_at=None)),
            models.Index(fields=["tell_at"], name="incident_to_tell", condition=Q(tell_at__isnull=False)),
            models.Index(fields=["told_at"], name="incident_told", condition=Q(told_at__isnull=False)),
            models.Index(fields=["last_at"], name="incident_last"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "subject", "fingerprint"], name="incident_once", condition=Q(closed_at=None)
            ),
            models.CheckConstraint(
                name="incident_kind_known", condition=Q(kind__in=["trigger", "agent", "item", "source"])
            ),
            models.CheckConstraint(name="incident_urgency_known", condition=Q(urgency__in=["low", "normal", "high"])),
            models.CheckConstraint(name="incident_told_known", condition=Q(told__in=["", "open", "closed"])),
            models.CheckConstraint(
                name="incident_closed_was_open", condition=Q(closed_at=None, closed_by="") | Q(opened_at__isnull=False)
            ),
            models.CheckConstraint(
                name="incident_told_was_open", condition=Q(told="", tell_at=None) | Q(opened_at__isnull=False)
            ),
            models.CheckConstraint(
                name="incident_told_at_a_time", condition=Q(told="", told_at=None) | Q(told_at__isnull=False)
            ),
            models.CheckConstraint(name="incident_row_counts", condition=Q(in_a_row__lte=models.F("count"))),
        ]

    def __str__(self) -> str:
        return shown(f"{self.name}: {self.cause}")[:200]

    @property
    def status(self) -> str:
        if self.closed_at:
            return "closed"
        return "open" if self.opened_at else "noticed"

    @property
    def has_failed_since(self) -> bool:
        """Has the thing failed again since this was closed, but not often enough in a row to open it again?"""
        return self.closed_at is not None and self.last_at > self.closed_at

    @property
    def is_open(self) -> bool:
        return self.status == "open"

    def fail(self, times: int, *, after: int, now: datetime, cooldown: timedelta) -> None:
        """Count failures. It opens, or opens again, once there are `after` since the last success; 0: never."""
        self.count += times
        self.in_a_row += times
        if self.is_open or not after or self.in_a_row < after:
            return
        if self.closed_at:
            self.reopened += 1
        self.opened_at = self.opened_at or now
        self.closed_at, self.closed_by = None, ""
        self._plan_message(now, cooldown)

    def succeed(self, *, now: datetime, cooldown: timedelta, by: str = "") -> None:
        """The thing has succeeded, or a person closes it: the failures in a row end, and with them an open incident."""
        self.in_a_row = 0
        if self.is_open:
            self.closed_at, self.closed_by = now, by
            self._plan_message(now, cooldown)

    def _plan_message(self, now: datetime, cooldown: timedelta) -> None:
        """Plan a message if the state differs from the last one sent: at once, or, after the incident has opened again,
        not before the cooldown since the last message.
        """
        if (self.told or self.Told.CLOSED) == self.status:
            self.tell_at = None
        elif self.reopened and self.told_at:
            self.tell_at = max(now, self.told_at + cooldown)
        else:
            self.tell_at = now


class CoveredRun(models.Model):
    """A failed run of an incident. A run that fails again moves to the end: its row is new."""

    # PostgreSQL deletes these with their incident (a migration), so that retention needs one statement.
    incident = models.ForeignKey(Incident, models.CASCADE, related_name="covered", db_constraint=False, db_index=False)
    run_id = models.UUIDField(unique=True)

    class Meta:
        default_permissions = ()
        indexes = [models.Index(fields=["incident", "id"], name="covered_by_incident")]

    def __str__(self) -> str:
        return str(self.run_id)
