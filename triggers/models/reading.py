from django.db import models
from django.db.models.functions import Now

from runs.models import Worker

from .source import Source


class Reading(models.Model):
    """The reading of a source that does not come by itself: the process that owns it, and the position up to which it is recorded.

    `epoch` rises with each new owner, so that a former owner can commit nothing."""

    source = models.OneToOneField(Source, models.CASCADE, primary_key=True, related_name="reading")
    # No foreign key in the database: the rows of stopped processes are deleted.
    owner = models.ForeignKey(
        Worker, models.DO_NOTHING, null=True, db_constraint=False, db_index=False, related_name="+"
    )
    epoch = models.PositiveBigIntegerField(db_default=0)
    taken_at = models.DateTimeField(null=True, help_text="when the owner took it")
    freed_at = models.DateTimeField(null=True, help_text="when its last owner gave it back")
    position = models.JSONField(null=True, help_text="null: the broker keeps it, or nothing was read yet")
    marks = models.JSONField(
        null=True, help_text="streams: where each stands; of: md5 of the position with which they were stored"
    )
    read_at = models.DateTimeField(null=True, help_text="when the last messages were recorded")
    read_count = models.PositiveBigIntegerField(db_default=0, help_text="messages recorded, duplicates included")
    lag = models.PositiveBigIntegerField(null=True, help_text="messages that wait at the source, as last known")
    held_since = models.DateTimeField(null=True, help_text="nothing is read: too many events wait for dispatch")
    failing_since = models.DateTimeField(null=True)
    failures = models.PositiveIntegerField(db_default=0, help_text="in a row")
    error = models.TextField(default="", db_default="")
    remedy = models.TextField(default="", db_default="")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"reading of {self.source_id}"


class SourceGap(models.Model):
    """Messages of a source that were lost before they were read. There is an event of it as well, as long as events are kept. What is
    found again and again is one gap."""

    source = models.ForeignKey(Source, models.CASCADE, related_name="gaps", db_index=False)
    gap_id = models.TextField(help_text="of its event")
    stream = models.TextField()
    reason = models.TextField()
    start = models.TextField(help_text="place of the first one; empty: not known")
    end = models.TextField(help_text="place of the last one; empty: not known")
    count = models.PositiveBigIntegerField(null=True, help_text="null: not known")
    detail = models.TextField(db_default="")
    at = models.DateTimeField(db_default=Now(), help_text="when it was found, the last time")
    times = models.PositiveBigIntegerField(db_default=1, help_text="how often it was found")
    since = models.DateTimeField(null=True, help_text="when it was found first; null: it was found once")

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["source", "gap_id"], name="source_gap_once")]
        indexes = [
            models.Index(fields=["source", "-at"], name="source_gap_by_source"),
            models.Index(fields=["at"], name="source_gap_by_age"),
        ]

    def __str__(self) -> str:
        return f"{self.gap_id} of {self.source_id}"


class PoisonMessage(models.Model):
    """A message of a source that could not become an event."""

    source = models.ForeignKey(Source, models.CASCADE, related_name="poison", db_index=False)
    origin = models.TextField()
    message_id = models.TextField()
    reason = models.TextField()
    body = models.BinaryField(help_text="as received, or its beginning")
    size = models.PositiveBigIntegerField(help_text="bytes of the whole body")
    headers = models.JSONField(default=dict)
    count = models.PositiveBigIntegerField(db_default=1, help_text="how often it was read")
    first_at = models.DateTimeField(db_default=Now())
    last_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["source", "origin", "message_id"], name="poison_message_once")]
        indexes = [
            models.Index(fields=["source", "-last_at"], name="poison_message_by_source"),
            models.Index(fields=["last_at"], name="poison_message_by_age"),
        ]

    def __str__(self) -> str:
        return f"{self.message_id} of {self.source_id}: {self.reason}"
