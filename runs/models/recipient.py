from datetime import timedelta

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from .notification import Notification


class Recipient(models.Model):
    """A person or a system that notifications are sent to, and the rules for what it gets when.

    `runs.notifications.edit` writes these rows: a name is also no name of a group, and an address with a
    secret is encrypted.
    """

    name = models.TextField(help_text='what agents call it in `to=`, such as "ops" or "ada"')
    address = models.TextField(help_text="as it may be shown: without its secret parts")
    ciphertext = models.BinaryField(null=True, help_text="the whole address, encrypted, if it has secret parts")
    channel = models.TextField(help_text="name of the channel that sends to this address")
    host = models.TextField(default="", help_text="what deliveries to this address share if it is away; empty: nothing")
    is_from_settings = models.BooleanField(default=False, help_text="its address is WAKEFUL_NOTIFY_TO")
    gets_all = models.BooleanField(default=True, help_text="it gets notifications that name no recipient")
    zone = models.TextField(default="UTC", help_text='time zone of its hours, such as "Europe/Vienna"')
    quiet_from = models.TimeField(null=True, help_text="nothing is sent from this time of day, unless it is urgent")
    quiet_until = models.TimeField(null=True)
    spacing = models.DurationField(
        default=timedelta(minutes=30), help_text="least time between two messages, unless urgent"
    )
    digest_hour = models.PositiveSmallIntegerField(
        null=True, help_text="hour of the day at which everything is sent together; empty: as it comes"
    )
    least_urgency = models.TextField(choices=Notification.Urgency, default=Notification.Urgency.LOW)
    repeat_after = models.DurationField(
        default=timedelta(days=1), help_text="the same text about the same topic is sent again after this time"
    )
    second = models.ForeignKey(
        "self", models.SET_NULL, null=True, related_name="first_routes", help_text="gets what this one cannot be sent"
    )
    second_after = models.DurationField(
        default=timedelta(minutes=10), help_text="time after which the second route is taken instead of more tries"
    )
    silenced_until = models.DateTimeField(null=True)
    active = models.BooleanField(default=True)
    failing_since = models.DateTimeField(null=True, help_text="since the first of its last deliveries that all failed")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["name"]
        permissions = [
            ("test_recipient", "Can send a test to a recipient"),
            ("silence_recipient", "Can silence a recipient for a time"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["name"], name="recipient_name_once"),
            models.UniqueConstraint(
                fields=["is_from_settings"], name="recipient_of_settings_once", condition=Q(is_from_settings=True)
            ),
            models.CheckConstraint(name="recipient_has_name", condition=~Q(name="")),
            models.CheckConstraint(
                name="recipient_quiet_hours_whole",
                condition=Q(quiet_from=None, quiet_until=None)
                | (Q(quiet_from__isnull=False, quiet_until__isnull=False) & ~Q(quiet_from=F("quiet_until"))),
            ),
            models.CheckConstraint(
                name="recipient_digest_hour_exists", condition=Q(digest_hour=None) | Q(digest_hour__lte=23)
            ),
            models.CheckConstraint(
                name="recipient_times_not_negative",
                condition=Q(spacing__gte=timedelta(), repeat_after__gte=timedelta(), second_after__gte=timedelta()),
            ),
            # Beyond, the sum with a time might leave the calendar.
            models.CheckConstraint(
                name="recipient_times_within_a_year",
                condition=Q(
                    spacing__lte=timedelta(days=366),
                    repeat_after__lte=timedelta(days=366),
                    second_after__lte=timedelta(days=366),
                ),
            ),
            models.CheckConstraint(
                name="recipient_urgency_known", condition=Q(least_urgency__in=["low", "normal", "high"])
            ),
            models.CheckConstraint(name="recipient_not_its_second", condition=Q(second=None) | ~Q(second=F("id"))),
        ]

    def __str__(self) -> str:
        return self.name


class RecipientGroup(models.Model):
    """Recipients that agents address together."""

    name = models.TextField()
    members = models.ManyToManyField(Recipient, related_name="groups")

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["name"], name="recipient_group_name_once"),
            models.CheckConstraint(name="recipient_group_has_name", condition=~Q(name="")),
        ]

    def __str__(self) -> str:
        return self.name
