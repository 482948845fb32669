from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString

from config.console.parts.links import run_link
from config.console.parts.moments import moment
from config.console.parts.panel import Panel, column, time_column
from config.console.parts.sections import Facts, Section, Text
from runs.models import Notification


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
            ("When", moment(obj.created_at)),
            ("Run", self.run(obj) or ""),
        ]
        return [Text(title="Message", text=obj.text), Facts(rows=facts)]
