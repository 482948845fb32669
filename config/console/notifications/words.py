"""Statuses, times and links of notifications, as several pages show them."""

from uuid import UUID

from django.utils.html import format_html
from django.utils.safestring import SafeString

from config.console.parts.html import shortened
from config.console.parts.links import link, page
from config.links import overnight_page
from runs.models import Notification
from triggers.overnight.digest import TOPIC as OVERNIGHT

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
DOTS = {"sent": "done", "failed": "failed", "unknown": "warning", "pending": "running", "sending": "running"}
PAGES = {
    "run": ("runs_run", "its run"),
    "event": ("triggers_event", "its event"),
    "alarm": ("runs_alarm", "the alarm"),
    "approval": ("runs_approval", "the approval"),
    "incident": ("runs_incident", "the incident"),
}
SHOWN = 200  # characters of a text in a table


def dot(status: str) -> SafeString:
    return format_html('<span class="console-dot console-dot-{}">{}</span>', DOTS.get(status, "other"), status)


def text_of(notification: Notification) -> str:
    return shortened(notification.text, SHOWN)


def leads_to(notification: Notification) -> SafeString | str:
    """The page that a notification leads to. Never the signed link of an approval: the console asks who decides."""
    kind, _, pk = notification.link.partition(":")
    if kind in PAGES and pk:
        noun, words = PAGES[kind]
        return link(page(noun, pk), words)
    if kind == OVERNIGHT:
        return link(overnight_page(pk), "what ran overnight")
    if notification.link.startswith(("https://", "http://")):
        return format_html('<a class="text-link" href="{}" rel="noreferrer">{}</a>', notification.link, "its link")
    return ""


def delivery_link(delivery_id: UUID, text: str) -> SafeString:
    return link(page("runs_delivery", delivery_id), text)
