import uuid

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class Source(models.Model):
    """A source of events. Event ids are unique per source, so that one sender cannot use up another's ids."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    slug = models.SlugField(max_length=100, unique=True)
    kind = models.TextField(help_text="the name of a kind, or one of: api, cli, schedule, run, manual")
    settings = models.JSONField(default=dict, blank=True)
    limits = models.JSONField(default=dict, blank=True, db_default={}, help_text="of a webhook: who may send, how much")
    declared = models.JSONField(
        null=True, editable=False, help_text="settings that the code declares; null: made by an operator"
    )
    trusted = models.BooleanField(
        default=False,
        db_default=False,
        help_text="no stranger writes its data; else runs it wakes are tainted by a model",
    )
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        permissions = [
            ("watch_table", "Can make events of the tables of this database"),
            ("push_sample", "Can push samples to sources"),
        ]

    def __str__(self) -> str:
        return self.slug


class Secret(models.Model):
    """A signing secret of a source, encrypted at rest; several are valid while a sender changes to a new one."""

    source = models.ForeignKey(Source, models.CASCADE, related_name="secrets")
    ciphertext = models.BinaryField()
    not_before = models.DateTimeField(db_default=Now())
    not_after = models.DateTimeField(null=True, blank=True)
    last_matched_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="secret_window", condition=Q(not_after=None) | Q(not_after__gt=models.F("not_before"))
            )
        ]

    def __str__(self) -> str:
        return f"secret {self.pk} of {self.source_id}"


class DeliveryRate(models.Model):
    """The deliveries that a source with a limit per minute has taken since its minute began."""

    source = models.OneToOneField(Source, models.CASCADE, primary_key=True, related_name="delivery_rate")
    since = models.DateTimeField(db_default=Now())
    count = models.PositiveIntegerField(db_default=1)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.count} of {self.source_id} since {self.since}"


class RefusedDelivery(models.Model):
    """Deliveries that a source answered with an error, counted by reason and hour (UTC)."""

    source = models.ForeignKey(Source, models.CASCADE, related_name="refused", db_index=False)
    hour = models.DateTimeField()
    reason = models.TextField()
    status = models.PositiveSmallIntegerField(help_text="of the answer")
    count = models.PositiveBigIntegerField(db_default=1)
    first_at = models.DateTimeField(db_default=Now())
    last_at = models.DateTimeField(db_default=Now())
    user_agent = models.TextField(blank=True, help_text="of the last one")

    class Meta:
        default_permissions = ()
        verbose_name_plural = "refused deliveries"
        constraints = [models.UniqueConstraint(fields=["source", "hour", "reason"], name="refused_delivery_once")]
        indexes = [models.Index(fields=["hour"], name="refused_delivery_by_hour")]

    def __str__(self) -> str:
        return f"{self.count} of {self.source_id}: {self.reason}"
