from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.functional import cached_property

from agents.kernel.redaction import shown
from runs.db.column_defaults import next_value, time_of_row

from .source import Source
from .trigger import Trigger


class Event(models.Model):
    """Something that happened, recorded once. Only `dispatched_at` changes; retention and erasure remove its payload
    (`data`, `body`, `headers`), and erasure its subject. The database refuses other changes."""

    id = models.UUIDField(primary_key=True, editable=False, help_text="UUIDv7")
    seq = models.BigIntegerField(db_default=next_value("triggers_seq"), editable=False)
    # No foreign key in the database: each event would lock the source's row. The database refuses to delete a source with events.
    source = models.ForeignKey(Source, models.PROTECT, db_constraint=False, db_index=False)
    ce_source = models.TextField()
    ce_id = models.TextField()
    type = models.TextField()
    subject = models.TextField(default="")
    time = models.DateTimeField(null=True, help_text="when it happened, by the sender's clock")
    data = models.JSONField(null=True)
    data_error = models.TextField(default="", help_text="why the body could not be kept as JSON")
    body = models.BinaryField(null=True)
    headers = models.JSONField(default=dict, null=True)
    body_sha256 = models.TextField(default="")
    payload_removed_at = models.DateTimeField(
        null=True, editable=False, help_text="when retention or erasure removed data, body and headers"
    )
    received_at = models.DateTimeField(db_default=time_of_row())
    imported_at = models.DateTimeField(
        null=True, editable=False, help_text="when it came from an archive; retention counts from then"
    )
    dispatched_at = models.DateTimeField(null=True)
    # No foreign key in the database: deleting a trigger must not change events.
    target = models.ForeignKey(
        "triggers.Trigger",
        models.DO_NOTHING,
        null=True,
        db_constraint=False,
        db_index=False,
        related_name="+",
        help_text="the one trigger it is meant for; null: matching decides",
    )
    root_id = models.UUIDField()
    cause_event_id = models.UUIDField(null=True)
    cause_run_id = models.UUIDField(null=True)
    depth = models.SmallIntegerField(default=0)
    chain = ArrayField(models.TextField(), db_default=[], help_text="slugs of the triggers whose runs led to it")
    is_tainted = models.BooleanField(db_default=False, help_text="emitted by a run that had seen untrusted data")

    class Meta:
        permissions = [
            ("replay_event", "Can replay events"),
            ("erase_event", "Can erase payloads of events for good"),
            ("export_event", "Can export events with their payloads"),
            ("import_event", "Can import events of any source from an archive"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["source", "ce_source", "ce_id"], name="event_once"),
            models.CheckConstraint(name="event_depth", condition=Q(depth__gte=0)),
        ]
        indexes = [
            models.Index(fields=["seq"], name="event_undispatched", condition=Q(dispatched_at=None)),
            # To count those of each source, and to pass by those of some.
            models.Index(
                fields=["source", "seq"], name="event_undispatched_of_source", condition=Q(dispatched_at=None)
            ),
            models.Index(fields=["subject"], name="event_by_subject", condition=~Q(subject="")),
            # The order of all readers of events. These are entered at dispatch, so that accepting an event stays cheap; so is
            # `event_by_field` of the migrations.
            models.Index(fields=["seq"], name="event_dispatched", condition=Q(dispatched_at__isnull=False)),
            models.Index(fields=["type", "seq"], name="event_by_type_seq", condition=Q(dispatched_at__isnull=False)),
            models.Index(
                fields=["source", "seq"], name="event_by_source_seq", condition=Q(dispatched_at__isnull=False)
            ),
            models.Index(fields=["received_at", "seq"], name="event_imported", condition=Q(imported_at__isnull=False)),
            # Entered at dispatch, like the indexes before.
            models.Index(
                fields=["source", "body_sha256", "seq"],
                name="event_by_body",
                condition=Q(dispatched_at__isnull=False) & ~Q(body_sha256=""),
            ),
            models.Index(fields=["cause_run_id"], name="event_by_cause", condition=Q(cause_run_id__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{shown(self.type)} {self.id}"

    @cached_property
    def has_lost_its_target(self) -> bool:
        """Whether the event's target trigger has been deleted, together with its decisions."""
        return self.target_id is not None and not Trigger.objects.filter(pk=self.target_id).exists()


class Redelivery(models.Model):
    """Redeliveries of an event; one row for each distinct body."""

    event = models.ForeignKey(Event, models.CASCADE, related_name="redeliveries", db_index=False)
    body_sha256 = models.TextField()
    differs = models.BooleanField(help_text="its body is not the first one's: a sender's bug, or a forger's try")
    count = models.PositiveIntegerField(default=1)
    last_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["event", "body_sha256"], name="redelivery_per_body")]

    def __str__(self) -> str:
        return f"{self.count} × {self.event_id}"


class Redispatch(models.Model):
    """A request to dispatch an event again; the dispatcher reads these like events."""

    event = models.ForeignKey(Event, models.CASCADE, related_name="redispatches")
    trigger = models.ForeignKey(
        "triggers.Trigger", models.CASCADE, null=True, help_text="null: every trigger that matches"
    )
    replay_id = models.UUIDField(help_text="the nil UUID resumes what was held")
    by = models.TextField(help_text="who requested it: a user, a token, a command")
    seq = models.BigIntegerField(db_default=next_value("triggers_seq"), editable=False)
    created_at = models.DateTimeField(db_default=Now())
    dispatched_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["seq"], name="redispatch_undispatched", condition=Q(dispatched_at=None)),
            models.Index(fields=["trigger", "seq"], name="redispatch_in_turn", condition=Q(dispatched_at=None)),
            models.Index(fields=["replay_id"], name="redispatch_of_replay", condition=Q(dispatched_at=None)),
        ]

    def __str__(self) -> str:
        return f"redispatch of {self.event_id}"
