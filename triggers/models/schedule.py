from datetime import timedelta

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django_celery_beat.models import PeriodicTask

from .exclusion_calendar import ExclusionCalendar
from .trigger import Trigger

NONE = timedelta(0)
SPENT = ["done", "used_up", "over"]  # at rest for good
PAUSED = Q(paused_at__isnull=False) & ~Q(rest__in=SPENT)


class Schedule(models.Model):
    """The time at which a PeriodicTask row fires next. A task with a trigger wakes an agent through an event; a task
    without one is the user's ordinary periodic task. Every PeriodicTask has one: row triggers on its tables see to it.

    A *nominal* time is what the rule names, a *due* time that plus jitter and spread. Every nominal time up to
    `accounted_until` is an event (or a sent task), or lies in a Skip that records the reason why it did not fire."""

    class Kind(models.TextChoices):
        SCHEDULE = "schedule", "schedule"
        HEARTBEAT = "heartbeat", "heartbeat"
        REMINDER = "reminder", "reminder"

    class CatchUp(models.TextChoices):
        LATEST = "latest", "only the latest missed fire"
        SKIP = "skip", "none of the missed fires"
        ALL = "all", "every missed fire"

    class Rest(models.TextChoices):
        """Why it has no next fire."""

        OFF = "off", "switched off"
        DONE = "done", "it was to fire once, and has"
        USED_UP = "used_up", "it has fired as often as it may"
        OVER = "over", "its rule names no further time, or its end has come"
        PROBLEM = "problem", "its rule cannot be carried out"
        FOREIGN = "foreign", "another Beat is to fire it"

    task = models.OneToOneField(PeriodicTask, models.CASCADE, related_name="wakeful")
    trigger = models.ForeignKey(Trigger, models.CASCADE, null=True, blank=True, related_name="schedules")
    kind = models.TextField(choices=Kind, db_default=Kind.SCHEDULE, default=Kind.SCHEDULE)
    data = models.JSONField(null=True, blank=True, help_text="data of its events besides their times")

    catch_up = models.TextField(choices=CatchUp, db_default=CatchUp.LATEST, default=CatchUp.LATEST)
    catch_up_max = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="with `all`: the most missed fires that are caught up, the newest; null: every one",
    )
    catch_up_window = models.DurationField(
        null=True, blank=True, help_text="what was missed longer ago than this is not caught up; null: however long ago"
    )
    jitter = models.DurationField(
        db_default=NONE, default=NONE, help_text="each fire comes later by less than this, another time each"
    )
    spread = models.DurationField(
        db_default=NONE,
        default=NONE,
        help_text="every fire comes later by the same part of this, its own to each schedule",
    )
    active_hours = models.TextField(
        db_default="", default="", blank=True, help_text='such as "mon-fri 09:00-17:00", in its zone; empty: always'
    )
    active_zone = models.TextField(
        db_default="",
        default="",
        blank=True,
        help_text="time zone of active hours and excluded days; empty: the crontab's, or UTC",
    )
    exclude = models.ManyToManyField(ExclusionCalendar, blank=True, related_name="schedules")
    max_fires = models.PositiveIntegerField(null=True, blank=True, help_text="number of fires after which it retires")
    pace_min = models.DurationField(null=True, blank=True, help_text="a heartbeat's agent may not set its pace faster")
    pace_max = models.DurationField(null=True, blank=True, help_text="a heartbeat's agent may not set its pace slower")

    next_fire_at = models.DateTimeField(null=True, help_text="the next nominal time (UTC); null: see `rest`")
    due_at = models.DateTimeField(null=True, help_text="when the next nominal time fires, with jitter and spread")
    accounted_until = models.DateTimeField(
        null=True, help_text="every nominal time up to here (UTC) has fired or was skipped"
    )
    last_fire_at = models.DateTimeField(null=True, help_text="the nominal time that fired last (UTC)")
    fired_at = models.DateTimeField(null=True, help_text="actual time of the last fire")
    fires = models.PositiveBigIntegerField(db_default=0, default=0, help_text="how often it has fired")
    rest = models.TextField(choices=Rest, db_default="", default="", blank=True)
    problem = models.TextField(
        db_default="", default="", blank=True, help_text="why it cannot fire, until it is edited"
    )

    anchor_at = models.DateTimeField(null=True, help_text="an interval's nominal times are anchor + k × every")
    spec = models.TextField(
        db_default="", default="", help_text="what next_fire_at was computed from; a change of it moves the anchor"
    )
    stale = models.BooleanField(db_default=True, default=True, help_text="it was edited: recompute before firing")
    edited_at = models.DateTimeField(
        db_default=Now(), help_text="the last edit of what decides when it fires; fires are counted from there"
    )
    created_at = models.DateTimeField(db_default=Now())
    paused_at = models.DateTimeField(null=True, help_text="since when it is switched off")
    paused_by = models.TextField(db_default="", default="", blank=True)
    paused_note = models.TextField(db_default="", default="", blank=True)

    class Meta:
        permissions = [("backfill_schedule", "Can backfill schedules")]
        constraints = [
            models.CheckConstraint(name="schedule_catch_up_known", condition=Q(catch_up__in=["latest", "skip", "all"])),
            models.CheckConstraint(
                name="schedule_kind_known", condition=Q(kind__in=["schedule", "heartbeat", "reminder"])
            ),
            models.CheckConstraint(
                name="schedule_rest_known",
                condition=Q(rest__in=["", "off", "done", "used_up", "over", "problem", "foreign"]),
            ),
            models.CheckConstraint(
                name="schedule_durations_not_negative",
                condition=Q(jitter__gte=NONE, spread__gte=NONE)
                & (Q(catch_up_window=None) | Q(catch_up_window__gt=NONE))
                & (Q(pace_min=None) | Q(pace_min__gt=NONE)),
            ),
            models.CheckConstraint(
                name="schedule_counts_positive",
                condition=(Q(catch_up_max=None) | Q(catch_up_max__gte=1)) & (Q(max_fires=None) | Q(max_fires__gte=1)),
            ),
            models.CheckConstraint(
                name="schedule_heartbeat_has_a_pace",
                condition=Q(kind="heartbeat", pace_min__lte=F("pace_max")) | Q(pace_min=None, pace_max=None),
            ),
            models.CheckConstraint(
                name="schedule_due_after_nominal",
                condition=Q(next_fire_at=None, due_at=None) | Q(due_at__gte=F("next_fire_at")),
            ),
        ]
        indexes = [
            models.Index(fields=["due_at", "id"], name="schedule_due", condition=Q(due_at__isnull=False, stale=False)),
            models.Index(fields=["next_fire_at", "id"], name="schedule_by_next_fire"),  # the list
            models.Index(fields=["id"], name="schedule_stale", condition=Q(stale=True)),
            # Normally empty: what should fire and does not know when.
            models.Index(fields=["id"], name="schedule_unarmed", condition=Q(due_at=None, stale=False, rest="")),
            models.Index(fields=["id"], name="schedule_problem", condition=Q(rest="problem")),
            models.Index(fields=["id"], name="schedule_paused", condition=PAUSED),
            models.Index(
                fields=["id"], name="schedule_left_alone", condition=Q(rest="foreign", fired_at__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return str(self.task.name)

    @property
    def status(self) -> str:
        """active, paused, or done, used_up, over, problem: what keeps it from firing ever again unless it is edited."""
        if self.rest and self.rest != self.Rest.OFF:
            return self.rest
        return "active" if self.task.enabled else "paused"
