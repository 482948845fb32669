"""The inbox of the user who is logged in: what waits for a decision, then what was sent to `inbox:<user>`, with the unread on top."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseForbidden, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString

from config.console.notifications.decisions import what_waits
from config.console.notifications.words import leads_to
from config.console.parts.html import format_html
from config.console.parts.links import link, listing, page, run_link
from config.console.parts.moments import moment
from config.console.parts.panel import acting
from runs.exceptions import RunError
from runs.models import Delivery, Notification, Recipient
from runs.notifications.digest_contents import carried_by
from runs.notifications.edit import open_inbox
from runs.notifications.inbox import acknowledge_all, inboxes_of, messages_of, unread
from runs.notifications.resolve import acknowledge

PER_PAGE = 30
PARTS = 300  # notifications merged into the messages of a page


class Asked(forms.Form):
    """Which messages are to be shown; invalid values are ignored."""

    show = forms.ChoiceField(choices=[("unread", "unread"), ("all", "all")], required=False)
    before = forms.DateTimeField(required=False)


class Act(forms.Form):
    """An action on an inbox: acknowledge a message, acknowledge all until a time, or open the inbox."""

    message = forms.UUIDField(required=False)
    until = forms.DateTimeField(required=False)
    begin = forms.BooleanField(required=False)


@dataclass(frozen=True, kw_only=True)
class Part:
    """A notification of a message, as the page shows it."""

    text: str
    sender: str
    urgency: str
    at: SafeString
    leads_to: SafeString | str
    run: SafeString | str


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A message as the page shows it."""

    delivery: Delivery
    parts: Sequence[Part]
    more: int
    url: str


def inbox(request: HttpRequest) -> HttpResponse:
    """The page, for every user of the console: it shows what the user may see elsewhere, and what was sent to the user."""
    user = request.user.get_username()
    if request.method == "POST":
        return _act(request, user)
    asked = Asked(request.GET)
    asked.is_valid()
    show, before = asked.cleaned_data.get("show") or "unread", asked.cleaned_data.get("before")
    found = (unread(user) if show == "unread" else messages_of(user)).select_related("notification")
    if before:
        found = found.filter(sent_at__lt=before)
    deliveries = list(found[: PER_PAGE + 1])
    request.current_app = admin.site.name
    context = {
        **admin.site.each_context(request),
        "title": "Inbox",
        "decisions": what_waits(request),
        "show": show,
        "inboxes": [link(page("runs_recipient", one.pk), one.name) for one in inboxes_of(user)],
        "shown": _shown(deliveries[:PER_PAGE]),
        "until": _exact(deliveries[0].sent_at) if deliveries else "",
        "older": _exact(deliveries[PER_PAGE - 1].sent_at) if len(deliveries) > PER_PAGE else "",
        "before": before,
        "may_begin": request.user.has_perm("runs.view_notification"),
        "is_set": bool(settings.WAKEFUL_NOTIFY_TO) or Recipient.objects.filter(active=True, gets_all=True).exists(),
        "recipients": listing("runs_recipient"),
    }
    return TemplateResponse(request, "admin/console/inbox.html", context)


def _act(request: HttpRequest, user: str) -> HttpResponse:
    form = Act(request.POST)
    if not form.is_valid():
        return HttpResponse("Reload the page, and try again.", status=400)
    message, until = form.cleaned_data["message"], form.cleaned_data["until"]
    try:
        if message:
            # Only one's own: others are acknowledged on their pages, with a permission.
            if not messages_of(user).filter(pk=message).exists():
                return HttpResponseForbidden("This message was not sent to you.")
            acknowledge(message, by=acting(request))
        elif until:
            messages.success(request, f"{acknowledge_all(user, until=until, by=acting(request))} acknowledged.")
        elif form.cleaned_data["begin"]:
            # It gets what this permission shows anyway.
            if not request.user.has_perm("runs.view_notification"):
                return HttpResponseForbidden("Ask an administrator for an inbox: it shows every notification.")
            made = open_inbox(user, by=acting(request))
            messages.success(
                request, f"Recipient {made.name} is your inbox. It gets notifications that name no recipient."
            )
    except RunError as refusal:
        messages.error(request, str(refusal))
    return HttpResponseRedirect(reverse("inbox"))


def _shown(deliveries: Sequence[Delivery]) -> list[Shown]:
    carried = carried_by(deliveries, most=PARTS)
    return [
        Shown(
            delivery=one,
            parts=[_part(notification) for notification in carried[one.pk].notifications],
            more=carried[one.pk].more,
            url=page("runs_delivery", one.pk),
        )
        for one in deliveries
    ]


def _part(notification: Notification) -> Part:
    is_of_run = notification.run_id and not notification.link.startswith("run:")
    return Part(
        text=notification.text,
        sender=notification.sender,
        urgency=notification.urgency,
        at=moment(notification.created_at),
        leads_to=leads_to(notification),
        run=format_html("run {}", run_link(notification.run_id)) if is_of_run and notification.run_id else "",
    )


def _exact(at: datetime | None) -> str:
    return at.isoformat() if at else ""
