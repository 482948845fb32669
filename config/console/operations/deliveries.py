"""Deliveries, recipients and groups: plain lists."""

from typing import ClassVar

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString

from config.console.parts.links import link, page
from config.console.parts.moments import moment
from config.console.parts.panel import Panel, column, time_column
from config.console.parts.sections import Facts, Section, Text
from runs.models import Delivery, Recipient, RecipientGroup

COLOURS = {
    "sent": "success",
    "failed": "danger",
    "unknown": "warning",
    "pending": "info",
    "sending": "info",
    "held": "info",
    "merged": "default",
    "suppressed": "default",
}


@admin.register(Delivery)
class DeliveryPanel(Panel):
    """What becomes of each notification at each recipient."""

    list_display = ("when", "status_label", "name", "channel", "text", "reason")
    list_display_links = ("when", "text")
    list_filter = ("status", "channel")
    search_fields = ("name",)
    search_help_text = "name of a recipient"
    ordering = ("-id",)
    list_select_related = ("notification",)

    when = time_column("when", "created_at")

    @column("status", label=COLOURS)
    def status_label(self, delivery: Delivery) -> str:
        return delivery.status

    @column("text")
    def text(self, delivery: Delivery) -> str:
        return str(delivery.notification)

    def sections(self, request: HttpRequest, obj: Delivery) -> list[Section]:
        facts = [
            ("To", obj.name),
            ("Channel", obj.channel),
            ("Status", obj.status),
            ("Why", obj.reason),
            ("Tries", obj.attempts),
            ("Last error", obj.error),
            ("Due", moment(obj.due_at)),
            ("Sent", moment(obj.sent_at)),
            ("Merged into", _delivery_link(obj) or ""),
            ("Acknowledged by", obj.acknowledged_by),
        ]
        return [Text(title="Message", text=obj.notification.text), Facts(rows=facts)]


@admin.register(Recipient)
class RecipientPanel(Panel):
    """Who notifications are sent to, and by which rules."""

    list_display = ("name", "address", "channel", "gets_all", "least_urgency", "active")
    list_filter = ("channel", "active")
    search_fields = ("name", "address")
    search_help_text = "name or address"
    ordering = ("name",)

    def sections(self, request: HttpRequest, obj: Recipient) -> list[Section]:
        quiet = f"{obj.quiet_from:%H:%M}–{obj.quiet_until:%H:%M}" if obj.quiet_from and obj.quiet_until else "none"
        facts = [
            ("Address", obj.address),
            ("Channel", obj.channel),
            ("Gets what names no recipient", "yes" if obj.gets_all else "no"),
            ("Time zone", obj.zone),
            ("Quiet hours", quiet),
            ("Spacing", obj.spacing),
            ("Daily digest", "none" if obj.digest_hour is None else f"{obj.digest_hour}:00"),
            ("Least urgency", obj.least_urgency),
            ("Second route", obj.second.name if obj.second else "none"),
            ("Silenced until", moment(obj.silenced_until)),
            ("Active", "yes" if obj.active else "no"),
            ("Failing since", moment(obj.failing_since)),
        ]
        return [Facts(rows=facts)]


@admin.register(RecipientGroup)
class RecipientGroupPanel(Panel):
    """Recipients that agents address together."""

    list_display: ClassVar[tuple[str, ...]] = ("name",)
    search_fields = ("name",)
    search_help_text = "name"
    ordering = ("name",)

    def sections(self, request: HttpRequest, obj: RecipientGroup) -> list[Section]:
        members = ", ".join(obj.members.values_list("name", flat=True))
        return [Facts(rows=[("Members", members or "none")])]


def _delivery_link(delivery: Delivery) -> SafeString | None:
    carrier = delivery.merged_into_id
    return link(page("runs_delivery", carrier), "the message that it goes out with") if carrier else None
