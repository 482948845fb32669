from uuid import UUID

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from .notification import Notification
from .recipient import Recipient


def new_id() -> UUID:
    return UUID(int=uuid7().int)


class Delivery(models.Model):
    """The delivery of one notification to one recipient.

    A *held* delivery waits for the recipient's rules: its spacing, its quiet hours, its digest. Later notifications are *merged*
    into it, and all go out as one message. A *pending* one is sent as soon as possible, or again. *Sending* is committed before
    a byte leaves. *Unknown*: the message was handed over, and no answer came.
    """

    class Status(models.TextChoices):
        PENDING = "pending"
        HELD = "held"
        SENDING = "sending"
        SENT = "sent"
        FAILED = "failed"
        UNKNOWN = "unknown"
        MERGED = "merged"
        SUPPRESSED = "suppressed"

    id = models.UUIDField(primary_key=True, default=new_id)
    # PostgreSQL deletes deliveries with their notification (a migration), so that retention needs one statement.
    notification = models.ForeignKey(Notification, models.CASCADE, related_name="deliveries", db_constraint=False)
    # Without an index of its own: `delivery_of_recipient` begins with it.
    recipient = models.ForeignKey(Recipient, models.SET_NULL, null=True, related_name="deliveries", db_index=False)
    name = models.TextField(help_text="of the recipient, also if there is none of this name")
    channel = models.TextField(default="")
    place = models.JSONField(
        null=True, help_text="of a reply: where it goes, in place of a recipient (`runs.notifications.places`)"
    )
    receipt = models.JSONField(
        null=True, help_text="what the receiver calls the message, so that it can be changed later"
    )
    thread = models.TextField(default="", db_default="", help_text="replies of one thread are sent in their order")
    is_urgent = models.BooleanField(default=False)
    status = models.TextField(choices=Status)
    reason = models.TextField(default="", help_text="why it is held, merged, suppressed, failed or unknown")
    merged_into = models.ForeignKey("self", models.CASCADE, null=True, related_name="merged", db_constraint=False)
    due_at = models.DateTimeField(null=True, help_text="when it is sent next; of one being sent, when its lease ends")
    give_up_at = models.DateTimeField(null=True, help_text="it fails if it could not be sent until then")
    attempts = models.PositiveIntegerField(default=0)
    claim = models.UUIDField(null=True, help_text="identity of the last attempt")
    error = models.TextField(default="", help_text="error of the last attempt")
    created_at = models.DateTimeField(db_default=Now())
    sent_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True, help_text="when it was sent, failed, suppressed or became unknown")
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.TextField(default="")

    class Meta:
        verbose_name_plural = "deliveries"
        permissions = [
            ("resolve_delivery", "Can say whether an unknown delivery arrived, and send a failed one again"),
            ("acknowledge_delivery", "Can acknowledge a delivery"),
        ]
        indexes = [
            models.Index(
                fields=["due_at"], name="delivery_due", condition=Q(status__in=["pending", "held", "sending"])
            ),
            models.Index(
                fields=["-is_urgent", "due_at"], name="delivery_order", condition=Q(status__in=["pending", "held"])
            ),
            models.Index(
                fields=["recipient"], name="delivery_under_way", condition=Q(status__in=["pending", "sending"])
            ),
            models.Index(fields=["recipient", "-sent_at"], name="delivery_last_sent", condition=Q(status="sent")),
            models.Index(fields=["recipient", "-id"], name="delivery_of_recipient"),
            models.Index(
                fields=["recipient", "-sent_at"],
                name="delivery_unread",
                condition=Q(status="sent", channel="inbox", acknowledged_at=None),
            ),
            models.Index(
                fields=["thread", "notification"],  # ids of deliveries follow the clocks of their hosts
                name="delivery_turn_of_thread",
                condition=Q(status__in=["pending", "sending"]) & ~Q(thread=""),
            ),
            models.Index(fields=["thread", "created_at"], name="delivery_recent_of_thread", condition=~Q(thread="")),
            models.Index(fields=["ended_at"], name="delivery_unknown", condition=Q(status="unknown")),
            models.Index(
                fields=["created_at"], name="delivery_to_unknown_name", condition=Q(recipient=None, status="suppressed")
            ),
        ]
        constraints = [
            models.UniqueConstraint(fields=["notification", "recipient"], name="delivery_once"),
            models.UniqueConstraint(fields=["recipient"], name="delivery_one_held", condition=Q(status="held")),
            models.CheckConstraint(
                name="delivery_status_known",
                condition=Q(
                    status__in=["pending", "held", "sending", "sent", "failed", "unknown", "merged", "suppressed"]
                ),
            ),
            models.CheckConstraint(
                name="delivery_open_is_due",
                condition=Q(status__in=["pending", "held", "sending"], due_at__isnull=False)
                | (~Q(status__in=["pending", "held", "sending"]) & Q(due_at=None)),
            ),
            models.CheckConstraint(
                name="delivery_merged_into_another",
                condition=Q(status="merged", merged_into__isnull=False) | (~Q(status="merged") & Q(merged_into=None)),
            ),
            models.CheckConstraint(
                name="delivery_sent_at_a_time", condition=~Q(status="sent") | Q(sent_at__isnull=False)
            ),
            models.CheckConstraint(
                name="delivery_not_made_has_reason", condition=~Q(status__in=["held", "suppressed"]) | ~Q(reason="")
            ),
            models.CheckConstraint(
                name="delivery_acknowledgement_has_author",
                condition=Q(acknowledged_at=None, acknowledged_by="")
                | (Q(acknowledged_at__isnull=False) & ~Q(acknowledged_by="")),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.status}"
