import uuid

from django.db import models
from django.db.models import Q

from .source import Source


class Switch(models.Model):
    """The dispatcher's notes on a source that watches for the absence of events: the definition that its timers follow, and the
    events that it could not watch."""

    source = models.OneToOneField(Source, models.CASCADE, primary_key=True, related_name="switch")
    shape = models.TextField(help_text="the events that it watches; another shape forgets its timers")
    terms = models.TextField(
        help_text="how long it waits; with other terms, its waiting timers are due at another time"
    )
    is_on = models.BooleanField(
        db_default=True, help_text="whether its source was enabled when the dispatcher last read it"
    )
    turned_away = models.PositiveBigIntegerField(db_default=0, help_text="events with a key beyond the limit of keys")
    turned_away_at = models.DateTimeField(null=True, help_text="the last of them")
    error = models.TextField(db_default="", help_text="of its filter or key, on the last event that had one")
    failed_at = models.DateTimeField(null=True)

    class Meta:
        default_permissions = ()
        verbose_name_plural = "switches"

    def __str__(self) -> str:
        return self.source.slug


class SwitchTimer(models.Model):
    """The clock of a switch for one key; switches without a key have one, with the empty key.

    Only the dispatcher changes it, under the dispatch lock. It is `waiting` until `due_at`, then `open` until the event returns."""

    class State(models.TextChoices):
        IDLE = "idle", "waits for nothing"
        WAITING = "waiting", "waits for the event"
        OPEN = "open", "the event is absent"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    source = models.ForeignKey(Source, models.CASCADE, related_name="timers", db_index=False)
    key = models.TextField()
    state = models.TextField(choices=State)
    episode = models.PositiveIntegerField(db_default=0, help_text="how often it has opened")
    since = models.DateTimeField(null=True, help_text="the time runs since then")
    since_id = models.UUIDField(null=True, help_text="the event that began it; null: the switch was enabled then")
    latest_at = models.DateTimeField(null=True, help_text="of the newest event that began the time")
    latest_id = models.UUIDField(null=True)
    seen_at = models.DateTimeField(null=True, help_text="when the awaited event came last")
    seen_id = models.UUIDField(null=True)
    began_at = models.DateTimeField(null=True, help_text="a /start without its end")
    due_at = models.DateTimeField(null=True, help_text="when it opens")
    look_at = models.DateTimeField(null=True, help_text="when the dispatcher looks at it next")
    opened_at = models.DateTimeField(null=True)
    opened_id = models.UUIDField(null=True, help_text="the event of the opening")
    reason = models.TextField(db_default="", help_text="why it is open")
    is_tainted = models.BooleanField(db_default=False, help_text="an event that it saw came from untrusted data")

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["source", "key"], name="switch_timer_once"),
            models.CheckConstraint(
                name="switch_timer_waits",
                condition=~Q(state="waiting") | Q(since__isnull=False, due_at__isnull=False, look_at__isnull=False),
            ),
            models.CheckConstraint(name="switch_timer_opened", condition=~Q(state="open") | Q(opened_at__isnull=False)),
        ]
        indexes = [
            models.Index(fields=["look_at"], name="switch_timer_due", condition=Q(look_at__isnull=False)),
            models.Index(fields=["source", "-opened_at"], name="switch_timer_open", condition=Q(state="open")),
        ]

    def __str__(self) -> str:
        return f"{self.state} {self.source_id} {self.key}"
