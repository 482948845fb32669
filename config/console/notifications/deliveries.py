"""Deliveries of notifications to recipients: their outcomes, and what people record about them."""

from collections.abc import Mapping
from uuid import UUID

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from config.console.access.audit import entries_of
from config.console.notifications.words import COLOURS, delivery_link, leads_to, text_of
from config.console.parts.bulk import carry_out
from config.console.parts.dialogs import dialog
from config.console.parts.html import format_html
from config.console.parts.links import link, page
from config.console.parts.moments import moment
from config.console.parts.panel import Panel, allowed, column, time_column
from config.console.parts.sections import Facts, Notice, Section, Table, Text
from config.console.parts.service_button import service_button
from runs.models import Delivery
from runs.notifications.resolve import SEEN, acknowledge, resolve

PARTS = 100  # merged deliveries shown
UNKNOWN, FAILED = Delivery.Status.UNKNOWN, Delivery.Status.FAILED
ARRIVED = dialog("Did it arrive?", "The delivery counts as sent. It is not sent again.", "It arrived")
SEND_AGAIN = dialog(
    "Send it again?",
    "One of unknown outcome may have arrived: ask the recipient first, or it arrives twice.",
    "Send it again",
)
ACKNOWLEDGE = dialog("Acknowledge it?", "This records that the message was seen.", "Acknowledge")


@admin.register(Delivery)
class DeliveryPanel(Panel):
    """Deliveries, one for each notification and recipient."""

    list_display = ("when", "status_label", "name", "channel", "text", "reason")
    list_display_links = ("when", "text")
    list_filter = ("status", "channel")
    search_fields = ("name",)
    search_help_text = "name of a recipient"
    ordering = ("-id",)
    list_select_related = ("notification",)
    actions = ("acknowledge_chosen", "send_chosen_again")
    actions_detail = ("arrived", "send_again", "acknowledge")
    has_resolve_permission = allowed("runs.resolve_delivery")
    has_acknowledge_permission = allowed("runs.acknowledge_delivery")

    when = time_column("when", "created_at")

    @column("status", label=COLOURS)
    def status_label(self, delivery: Delivery) -> str:
        return delivery.status

    @column("text")
    def text(self, delivery: Delivery) -> str:
        return str(delivery.notification)

    # What people say

    @service_button(
        "It arrived", "runs.resolve_delivery", ARRIVED, icon="check", variant="success", done="It counts as sent."
    )
    def arrived(self, object_id: str, by: str) -> None:
        resolve(UUID(object_id), outcome="arrived", by=by)

    @service_button(
        "Send again", "runs.resolve_delivery", SEND_AGAIN, icon="send", url_path="send-again", done="It is sent again."
    )
    def send_again(self, object_id: str, by: str) -> None:
        resolve(UUID(object_id), outcome="send_again", by=by)

    @service_button("Acknowledge", "runs.acknowledge_delivery", ACKNOWLEDGE, icon="done_all", done="Acknowledged.")
    def acknowledge(self, object_id: str, by: str) -> None:
        acknowledge(UUID(object_id), by=by)

    def possible_buttons(self, request: HttpRequest, object_id: str) -> Mapping[str, bool]:
        delivery = Delivery.objects.filter(pk=object_id).first()
        if delivery is None:
            return dict.fromkeys(self.actions_detail, False)
        return {
            "arrived": delivery.status == UNKNOWN,
            "send_again": delivery.status in (UNKNOWN, FAILED),
            "acknowledge": delivery.status in SEEN and not delivery.acknowledged_at,
        }

    @admin.action(description="Acknowledge", permissions=["acknowledge"])
    def acknowledge_chosen(self, request: HttpRequest, queryset: QuerySet[Delivery]) -> None:
        legal = Q(status__in=SEEN)
        carry_out(request, queryset, _acknowledge, done="acknowledged", legal=legal, otherwise="nothing was sent yet")

    @admin.action(description="Send again", permissions=["resolve"])
    def send_chosen_again(self, request: HttpRequest, queryset: QuerySet[Delivery]) -> None:
        # One of unknown outcome may have arrived: each is a question of its own.
        otherwise = "only failed ones are sent again together"
        carry_out(request, queryset, _send_again, done="sent again", legal=Q(status=FAILED), otherwise=otherwise)

    # One delivery

    def sections(self, request: HttpRequest, obj: Delivery) -> list[Section]:
        told, to = obj.notification, obj.recipient
        facts = [
            ("To", link(page("runs_recipient", to.pk), obj.name) if to else obj.name),
            ("Channel", obj.channel),
            ("Notification", link(page("runs_notification", told.pk), f"{told.pk}, from {told.sender}")),
            ("Leads to", leads_to(told)),
            ("Urgency", told.urgency),
            ("Made", moment(obj.created_at)),
            ("Due", obj.due_at and moment(obj.due_at)),
            ("Given up at", obj.give_up_at and moment(obj.give_up_at)),
            ("Sent", obj.sent_at and moment(obj.sent_at)),
            ("Tries", obj.attempts),
            ("Last error", obj.error),
            ("Goes out with", _carrier(obj.merged_into) if obj.merged_into else ""),
            ("Acknowledged", obj.acknowledged_at and moment(obj.acknowledged_at)),
            ("By", obj.acknowledged_by),
        ]
        message = Text(title="Message", text=told.text)
        return [_notice(obj), message, Facts(rows=facts), *_merged(obj), entries_of("delivery", obj.pk)]


def _carrier(carrier: Delivery) -> SafeString:
    """The message that it is a part of, and when that one is sent."""
    shown = delivery_link(carrier.pk, "another one")
    if carrier.sent_at:
        return format_html("{}, sent {}", shown, moment(carrier.sent_at))
    return format_html("{}, due {}", shown, moment(carrier.due_at)) if carrier.due_at else shown


def _acknowledge(delivery: Delivery, *, by: str) -> None:
    acknowledge(delivery.pk, by=by)


def _send_again(delivery: Delivery, *, by: str) -> None:
    resolve(delivery.pk, outcome="send_again", by=by)


def _notice(delivery: Delivery) -> Notice:
    level = {"sent": "good", "failed": "bad", "unknown": "warning"}.get(delivery.status, "info")
    reason = f": {delivery.reason}" if delivery.reason else ""
    details = []
    if delivery.status == UNKNOWN:
        details = [
            f"Ask {delivery.name} whether it arrived, and record the answer here. It is not sent again automatically, because the receiver "
            "could not distinguish the second message from the first."
        ]
    return Notice(text=f"{delivery.status.capitalize()}{reason}.", level=level, details=details)


def _merged(delivery: Delivery) -> list[Section]:
    parts = list(delivery.merged.select_related("notification").order_by("notification_id")[: PARTS + 1])
    if not parts:
        return []
    rows = [
        (delivery_link(part.pk, text_of(part.notification)), part.notification.sender, moment(part.created_at))
        for part in parts[:PARTS]
    ]
    note = f"The first {PARTS}." if len(parts) > PARTS else ""
    title, headers = "Goes out as one message with", ("Text", "From", "When")
    return [Table(title=title, headers=headers, rows=rows, empty="", note=note)]
