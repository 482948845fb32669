from collections.abc import Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
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

    MUTE = ("muted_at", "muted_by", "muted_note", "muted_until", "muted_versions")  # the fields of a mute

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
    tell_at = models.DateTimeField(null=True, help_text="time of the next notification, or of the end of a mute")
    escalated = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="how many recipients of WAKEFUL_ESCALATE_TO it has been escalated to"
    )

    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.TextField(default="", db_default="")
    acknowledged_note = models.TextField(default="", db_default="")

    muted_at = models.DateTimeField(null=True)
    muted_by = models.TextField(default="", db_default="")
    muted_note = models.TextField(default="", db_default="")
    muted_until = models.DateTimeField(null=True)
    muted_versions = ArrayField(
        models.TextField(),
        default=list,
        db_default=[],
        help_text="versions of the code: the mute ends when a worker starts with another one",
    )

    class Meta:
        default_permissions = ("view",)
        permissions = [
            ("close_incident", "Can close incidents"),
            ("acknowledge_incident", "Can acknowledge incidents"),
            ("mute_incident", "Can mute incidents"),
        ]
        indexes = [
            models.Index(fields=["kind", "subject"], name="incident_failing", condition=Q(in_a_row__gt=0)),
            models.Index(
                fields=["kind", "subject", "closed_at"], name="incident_closed", condition=Q(closed_at__isnull=False)
            ),
            models.Index(fields=["-id"], name="incident_open", condition=Q(opened_at__isnull=False, closed_at=None)),
            models.Index(fields=["tell_at"], name="incident_to_tell", condition=Q(tell_at__isnull=False)),
            models.Index(fields=["told_at"], name="incident_told", condition=Q(told_at__isnull=False)),
            models.Index(fields=["last_at"], name="incident_last"),
            models.Index(fields=["kind", "subject"], name="incident_muted", condition=Q(muted_at__isnull=False)),
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
            models.CheckConstraint(
                name="incident_acknowledged_by",
                condition=Q(acknowledged_at=None, acknowledged_by="", acknowledged_note="")
                | Q(acknowledged_at__isnull=False, opened_at__isnull=False) & ~Q(acknowledged_by=""),
            ),
            models.CheckConstraint(
                name="incident_muted_by",
                condition=Q(muted_at=None, muted_by="", muted_note="", muted_until=None, muted_versions=[])
                | Q(muted_at__isnull=False, opened_at__isnull=False) & ~Q(muted_by=""),
            ),
            models.CheckConstraint(
                name="incident_muted_for_one_reason", condition=Q(muted_until=None) | Q(muted_versions=[])
            ),
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

    @property
    def is_muted(self) -> bool:
        return self.muted_at is not None

    @property
    def is_failing(self) -> bool:
        """Open, or its thing has failed since its end. Only then may a person acknowledge or mute it."""
        return self.is_open or self.has_failed_since

    def fail(self, times: int, *, after: int, now: datetime, cooldown: timedelta) -> None:
        """Count failures. It opens, or opens again, once there are `after` since the last success; 0: never."""
        self.count += times
        self.in_a_row += times
        if self.is_open and not self.is_muted and not self.told and self.tell_at:
            self.tell_at = now  # a mute has ended, and it still fails
        if self.is_open or not after or self.in_a_row < after:
            return
        if self.closed_at:
            self.reopened += 1
            if self.closed_at < now - cooldown:  # a muted one, long after
                self.acknowledged_at, self.acknowledged_by, self.acknowledged_note = None, "", ""
        self.opened_at = self.opened_at or now
        self.closed_at, self.closed_by = None, ""
        self._plan_message(now, cooldown)

    def succeed(self, *, now: datetime, cooldown: timedelta, by: str = "") -> None:
        """The thing has succeeded, or a person closes it: the failures in a row end, and with them an open incident."""
        self.in_a_row = 0
        if self.is_open:
            self.closed_at, self.closed_by = now, by
            self._plan_message(now, cooldown)
            if self.is_muted and not self.muted_until and not self.muted_versions:
                self.unmute(now=now, cooldown=cooldown)

    def acknowledge(self, *, by: str, note: str, now: datetime) -> None:
        """A person looks into it: while it is open, people get no further message about it."""
        self.acknowledged_at, self.acknowledged_by, self.acknowledged_note = now, by, note
        if self.is_open and not self.is_muted:
            self.tell_at = None

    def mute(
        self, *, by: str, note: str, now: datetime, until: datetime | None = None, versions: Sequence[str] = ()
    ) -> None:
        """People get no message about it: until then, until a worker starts with another version, or without both until it is closed."""
        self.muted_at, self.muted_by, self.muted_note = now, by, note
        self.muted_until, self.muted_versions = until, list(versions)
        self.told, self.tell_at = self.Told.NOTHING, until

    def unmute(self, *, now: datetime, cooldown: timedelta) -> None:
        """If it is open, people get a message at its next failure, or after the cooldown, unless it is closed before."""
        self.muted_at, self.muted_by, self.muted_note = None, "", ""
        self.muted_until, self.muted_versions = None, []
        self.tell_at = now + cooldown if self.is_open and not self.acknowledged_at else None

    def escalates_at(self, now: datetime) -> datetime | None:
        """The time of the next escalation of one that people have been notified of."""
        is_due = self.is_open and self.urgency == Notification.Urgency.HIGH and not self.acknowledged_at
        is_left = self.escalated < len(settings.WAKEFUL_ESCALATE_TO)
        return now + settings.WAKEFUL_ESCALATE_AFTER if is_due and is_left else None

    def _goes_on_at(self, now: datetime) -> datetime | None:
        """The time of the next escalation of one that opens again: the time while it was closed counts, too, or one that flaps would
        never be escalated."""
        at, after = self.escalates_at(now), settings.WAKEFUL_ESCALATE_AFTER
        return max(now, min(at, self.told_at + after * (self.escalated + 1))) if at and self.told_at else at

    def _plan_message(self, now: datetime, cooldown: timedelta) -> None:
        """Plan a message if the state differs from the last one sent: at once, or, after the incident has opened again,
        not before the cooldown since the last message. Of an acknowledged one, only its end, once it lasts for the cooldown.
        """
        if self.is_muted:
            return
        if (self.told or self.Told.CLOSED) == self.status:
            self.tell_at = self._goes_on_at(now)
        elif self.acknowledged_at and not self.closed_by:
            self.tell_at = None if self.is_open else now + cooldown
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
