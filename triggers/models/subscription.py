import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from runs.models.delivery import new_id

from .event import Event


class Subscription(models.Model):
    """A URL that events leave to as signed webhooks, and which of them do."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    slug = models.SlugField(max_length=100, unique=True)
    address = models.TextField(help_text="its URL as it may be shown: without path and query, which may be secrets")
    ciphertext = models.BinaryField(help_text="the whole URL, encrypted")
    sources = ArrayField(
        models.TextField(), default=list, blank=True, help_text='globs of source slugs, such as "shop-*"; empty: any'
    )
    types = ArrayField(models.TextField(), help_text='event type globs, such as "invoice.*"')
    filter = models.TextField(
        default="", blank=True, help_text="CEL, such as event.data.amount > 100; empty: every event"
    )
    enabled = models.BooleanField(default=True)
    disabled_reason = models.TextField(
        default="", blank=True, help_text="why Wakeful disabled it; empty: it is enabled, or an operator disabled it"
    )
    failing_since = models.DateTimeField(null=True, help_text="when the first attempt failed since the last success")
    error = models.TextField(default="", blank=True, help_text="error of the last attempt, while attempts fail")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        permissions = [("redeliver_subscription", "Can send events to subscriptions again")]
        constraints = [
            models.CheckConstraint(name="subscription_has_types", condition=~Q(types=[])),
            models.CheckConstraint(
                name="subscription_disabled_for_a_reason", condition=Q(enabled=False) | Q(disabled_reason="")
            ),
        ]

    def __str__(self) -> str:
        return self.slug


class SubscriptionSecret(models.Model):
    """A signing secret of a subscription, encrypted. While the receiver changes to a new one, each delivery has a signature by
    each of them."""

    subscription = models.ForeignKey(Subscription, models.CASCADE, related_name="secrets")
    ciphertext = models.BinaryField()
    not_after = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"secret {self.pk} of {self.subscription_id}"


class EventDelivery(models.Model):
    """The delivery of an event to a subscription. Inserted in the transaction that dispatches the event.

    *Sending* is claimed with a lease, `due_at`: if the process dies, the event is sent again, and `webhook-id`, which is made from
    `id`, is the same each time. *Error*: the filter could not be evaluated, so nothing was sent.
    """

    class Status(models.TextChoices):
        PENDING = "pending"
        SENDING = "sending"
        DELIVERED = "delivered"
        FAILED = "failed"
        ERROR = "error"

    id = models.UUIDField(primary_key=True, default=new_id)
    event = models.ForeignKey(Event, models.CASCADE, related_name="deliveries", db_index=False)
    # No foreign key in the database: dispatch waits for no edit, and what was sent stays when the subscription is deleted.
    subscription = models.ForeignKey(
        Subscription, models.DO_NOTHING, related_name="deliveries", db_constraint=False, db_index=False
    )
    name = models.TextField(help_text="slug of the subscription, also after its deletion")
    status = models.TextField(choices=Status)
    reason = models.TextField(default="", db_default="", help_text="why it failed, or why it waits")
    due_at = models.DateTimeField(null=True, help_text="when it is sent next; of one being sent, when its lease ends")
    attempts = models.PositiveIntegerField(
        default=0, db_default=0, help_text="attempts since it was entered or redelivered"
    )
    claim = models.UUIDField(null=True, help_text="identity of the last attempt")
    tries = models.JSONField(
        default=list, db_default=[], help_text="the last attempts: at, status, seconds, answer (its first bytes), error"
    )
    entered_at = models.DateTimeField(db_default=Now(), help_text="when it was entered or redelivered")
    ended_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "event deliveries"
        indexes = [
            models.Index(fields=["due_at"], name="event_delivery_due", condition=Q(status__in=["pending", "sending"])),
            models.Index(
                fields=["subscription", "due_at"], name="event_delivery_in_turn", condition=Q(status="pending")
            ),
            models.Index(fields=["subscription", "id"], name="event_delivery_of_one"),
            models.Index(fields=["subscription", "id"], name="event_delivery_failed", condition=Q(status="failed")),
        ]
        constraints = [
            models.UniqueConstraint(fields=["event", "subscription"], name="event_delivery_once"),
            models.CheckConstraint(
                name="event_delivery_status_known",
                condition=Q(status__in=["pending", "sending", "delivered", "failed", "error"]),
            ),
            models.CheckConstraint(
                name="event_delivery_open_is_due",
                condition=Q(status__in=["pending", "sending"], due_at__isnull=False, ended_at=None)
                | (Q(due_at=None, ended_at__isnull=False) & ~Q(status__in=["pending", "sending"])),
            ),
            models.CheckConstraint(
                name="event_delivery_failed_for_a_reason", condition=~Q(status__in=["failed", "error"]) | ~Q(reason="")
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.status}"

    @property
    def webhook_id(self) -> str:
        """The id by which a receiver recognises the delivery."""
        return webhook_id(self.id)


def webhook_id(delivery_id: uuid.UUID) -> str:
    return f"msg_{delivery_id}"
