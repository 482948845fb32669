from django.contrib import admin
from django.db.models import F
from django.http import HttpRequest
from django.utils.safestring import SafeString

from config.console.notifications.words import delivery_link, dot
from config.console.parts.links import run_link
from config.console.parts.moments import moment
from config.console.parts.panel import Panel, column, time_column
from config.console.parts.sections import Facts, Notice, Section, Table, Text
from runs.models import Notification

SHOWN = 100  # deliveries


@admin.register(Notification)
class NotificationPanel(Panel):
    """Messages to people from agents and from Wakeful itself."""

    list_display = ("when", "urgency_label", "text", "sender", "run")
    list_display_links = ("when", "text")
    list_filter = ("urgency",)
    search_fields = ("sender", "text")
    search_help_text = "sender or text"
    ordering = ("-created_at",)

    when = time_column("when", "created_at")

    @column("urgency", label={"high": "danger", "normal": "info", "low": "default"})
    def urgency_label(self, notification: Notification) -> str:
        return notification.urgency

    @column("run", empty_value="–")
    def run(self, notification: Notification) -> SafeString | None:
        return run_link(notification.run_id) if notification.run_id else None

    def sections(self, request: HttpRequest, obj: Notification) -> list[Section]:
        facts = [
            ("From", obj.sender),
            ("Urgency", obj.urgency),
            ("Topic", obj.topic),
            ("To", ", ".join(obj.to) or "everyone who gets all"),
            ("When", moment(obj.created_at)),
            ("Run", self.run(obj) or ""),
        ]
        return [*_notice(obj), Text(title="Message", text=obj.text), Facts(rows=facts), _deliveries(obj)]


def _notice(notification: Notification) -> list[Section]:
    if notification.planned_at is None:
        return [Notice(text="It is not planned yet: the dispatcher does so within a second while it runs.")]
    if notification.deliveries.exists():
        return []
    return [Notice(text="No recipient was known when it was sent, so no one got it.", level="warning")]


def _deliveries(notification: Notification) -> Table:
    found = notification.deliveries.order_by("name", "id")[: SHOWN + 1]
    return Table(
        title="Deliveries",
        headers=("To", "Status", "Why", "Sent", "Acknowledged"),
        rows=[
            (
                delivery_link(one.pk, one.name),
                dot(one.status),
                one.reason,
                moment(one.sent_at or one.carrier_sent_at),
                f"by {one.acknowledged_by}" if one.acknowledged_at else "–",
            )
            for one in found.annotate(carrier_sent_at=F("merged_into__sent_at"))[:SHOWN]
        ],
        empty="None.",
        is_cards=True,
        note=f"The first {SHOWN}." if len(found) > SHOWN else "",
    )
