"""Recipients: their rules, what they got and why, and a test of each."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from unfold.forms import BaseDialogForm

from agents.kernel.durations import in_words, parse_duration
from config.console.access.audit import entries_of
from config.console.notifications.history import history
from config.console.notifications.recipient_form import RecipientForm
from config.console.notifications.words import delivery_link
from config.console.parts import fields
from config.console.parts.dialogs import dialog, leave
from config.console.parts.html import format_html
from config.console.parts.links import joined, link, listing, page
from config.console.parts.moments import moment
from config.console.parts.pages import form_page
from config.console.parts.panel import Panel, acting, allowed, button, column, time_column
from config.console.parts.sections import Facts, LiveNotice, Notice, Section
from config.console.parts.service_button import service_button
from runs.db.sql import database_now
from runs.models import Delivery, Recipient
from runs.notifications.channels.inbox import CHANNEL as INBOX
from runs.notifications.edit import (
    change_recipient,
    create_recipient,
    remove_recipient,
    send_test,
    silence_for,
    topic_of_tests,
)
from runs.notifications.inbox import has_reader
from runs.notifications.recipients import OF_SETTINGS

LENGTHS = [("1h", "1 hour"), ("1d", "a day"), ("7d", "a week"), ("", "no longer: end the silence")]
TESTED = timedelta(hours=1)  # a test is shown on top of the page for this long
OPEN = (Delivery.Status.PENDING, Delivery.Status.SENDING, Delivery.Status.HELD)


class SilenceForm(BaseDialogForm):  # type: ignore[misc]
    length = fields.RadioField(choices=LENGTHS, initial="1d", required=False, label="For")


SILENCE = dialog(
    "Silence it?",
    "Nothing is sent meanwhile: held notifications wait, new ones are suppressed, and urgent ones take the second route.",
    "Silence",
    SilenceForm,
)


DELETE = dialog("Delete this recipient?", "Sent notifications stay. Waiting ones are suppressed.", "Delete it")
TEST = dialog("Send a test?", "It is sent now, regardless of the rules.", "Send it")


@admin.register(Recipient)
class RecipientPanel(Panel):
    """Who notifications are sent to, and by which rules."""

    list_display = ("name", "address", "state", "gets_all", "least_urgency", "failing")
    list_filter = ("channel", "active")
    search_fields = ("name", "address")
    search_help_text = "name or address"
    ordering = ("name",)
    actions_detail = ("test", "silence", "edit", "delete_this")
    has_add_permission = allowed("runs.add_recipient")

    failing = time_column("failing since", "failing_since")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Recipient]:
        recipients: QuerySet[Recipient] = super().get_queryset(request).select_related("second")
        return recipients

    @column("state", label={"active": "success", "silenced": "warning", "inactive": "default", "failing": "danger"})
    def state(self, recipient: Recipient) -> str:
        if not recipient.active:
            return "inactive"
        if _is_silenced(recipient):
            return "silenced"
        return "failing" if recipient.failing_since else "active"

    # Editing

    def new(self, request: HttpRequest) -> HttpResponse:
        form = RecipientForm(request.POST or None)
        if form.is_valid():
            values = form.cleaned_data
            made = form.carry_out(lambda: create_recipient(**values, by=acting(request)))
            if made is not None:
                messages.success(request, f"Recipient {made.name} is ready. Send it a test.")
                return leave(request, page("runs_recipient", made.pk))
        back = listing("runs_recipient")
        return form_page(
            self, request, form, title="New recipient", submit="Create the recipient", back=back, groups=form.groups
        )

    @button("Edit", permissions=["runs.change_recipient"], icon="edit")
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        recipient = get_object_or_404(Recipient, pk=object_id)
        form = RecipientForm(request.POST or None, recipient=recipient)
        back = page("runs_recipient", recipient.pk)
        if form.is_valid():
            act = partial(change_recipient, recipient.pk, **form.changes(), by=acting(request))
            if form.carry_out(act) is not None:
                messages.success(request, "Saved.")
                _warn_of_no_one(request)
                return leave(request, back)
        title = f"Recipient {recipient.name}"
        return form_page(self, request, form, title=title, submit="Save", back=back, groups=form.groups, obj=recipient)

    @service_button(
        "Delete", "runs.delete_recipient", DELETE, icon="delete", url_path="remove", done="Deleted.", to_list=True
    )
    def delete_this(self, object_id: str, by: str) -> None:
        remove_recipient(int(object_id), by=by)

    # Silence and tests

    @service_button(
        "Send a test", "runs.test_recipient", TEST, icon="send", variant="primary", done="The test is on its way."
    )
    def test(self, object_id: str, by: str) -> None:
        send_test(int(object_id), by=by)

    @service_button("Silence", "runs.silence_recipient", SILENCE, icon="notifications_off")
    def silence(self, object_id: str, by: str, length: str) -> str:
        silence_for(int(object_id), parse_duration(length) if length else None, by=by)
        return "Silenced." if length else "No longer silenced."

    def possible_buttons(self, request: HttpRequest, object_id: str) -> Mapping[str, bool]:
        recipient = Recipient.objects.filter(pk=object_id).first()
        if recipient is None:
            return {}
        is_active = recipient.active
        return {"delete_this": not recipient.is_from_settings, "test": is_active, "silence": is_active}

    # One recipient

    def sections(self, request: HttpRequest, obj: Recipient) -> list[Section]:
        return [*_test_of(obj), *_notices(obj), _rules(obj), history(request, obj), entries_of("recipient", obj.pk)]


def _warn_of_no_one(request: HttpRequest) -> None:
    if not Recipient.objects.filter(Q(gets_all=True) | Q(is_from_settings=True), active=True).exists():
        text = "No active recipient gets notifications that name no recipient: alarms, incidents and most others reach no one."
        messages.warning(request, text)


def _is_silenced(recipient: Recipient) -> bool:
    return recipient.silenced_until is not None and recipient.silenced_until > database_now()


def _test_of(recipient: Recipient) -> list[Section]:
    """The outcome of the recipient's last test."""
    tests = recipient.deliveries.filter(notification__topic=topic_of_tests(recipient)).order_by("-id")
    test = tests.first()
    if test is None or test.created_at < database_now() - TESTED:
        return []
    if test.status in OPEN:
        tried = format_html("The last try failed: {}. It is tried again until {}.", test.error, moment(test.give_up_at))
        text = "The test has not arrived yet." if test.error else "The test is on its way."
        return [LiveNotice(text=text, details=[tried] if test.error else [])]
    details = [delivery_link(test.pk, "The delivery")]
    if test.status == Delivery.Status.SENT:
        return [
            Notice(
                text=format_html("The test has arrived at {}.", moment(test.sent_at)),
                level="good",
                details=details,
            )
        ]
    words = {
        "failed": ("The test has failed", "bad"),
        "unknown": ("It is unknown whether the test has arrived", "warning"),
    }
    text, level = words.get(test.status, (f"The test is {test.status}", "warning"))
    return [Notice(text=f"{text}: {test.reason or test.error}.", level=level, details=details)]


def _notices(recipient: Recipient) -> list[Section]:
    if not recipient.active:
        how = f"Set {OF_SETTINGS}." if recipient.is_from_settings else "Edit it to make it active."
        return [Notice(text=f"Inactive: it gets nothing. {how}", level="warning")]
    found: list[Section] = []
    if _is_silenced(recipient):
        text = format_html("Silenced until {}: nothing is sent.", moment(recipient.silenced_until))
        found.append(Notice(text=text, level="warning"))
    if recipient.channel == INBOX.name and not has_reader(recipient.address):
        unread = "Its user does not exist, is inactive, or may not log in: no one reads what is sent to it."
        found.append(Notice(text=unread, level="bad", details=["Set another address, or activate the user."]))
    if recipient.failing_since:
        text = format_html("Its last deliveries have failed since {}.", moment(recipient.failing_since))
        second = f"Recipient {recipient.second.name} gets them instead." if recipient.second else ""
        found.append(Notice(text=text, level="bad", details=[second or "Correct its address, and send a test."]))
    return found


def _gets_all(recipient: Recipient) -> str:
    if recipient.gets_all:
        return "yes"
    return "no, except what no one else gets" if recipient.is_from_settings else "no"


def _rules(recipient: Recipient) -> Facts:
    quiet = "none"
    if recipient.quiet_from is not None and recipient.quiet_until is not None:
        quiet = f"{recipient.quiet_from:%H:%M} to {recipient.quiet_until:%H:%M} ({recipient.zone})"
    groups = [link(page("runs_recipientgroup", group.pk), group.name) for group in recipient.groups.order_by("name")]
    second = recipient.second
    after = f", after {in_words(recipient.second_after)}"
    return Facts(
        rows=[
            ("Name", recipient.name),
            ("Address", recipient.address),
            ("Comes from", OF_SETTINGS if recipient.is_from_settings else ""),
            ("Channel", recipient.channel),
            ("Gets notifications that name no recipient", _gets_all(recipient)),
            ("Least urgency", recipient.least_urgency),
            ("Time zone", recipient.zone),
            ("Quiet hours", quiet),
            ("Spacing", in_words(recipient.spacing) if recipient.spacing else "none"),
            (
                "Daily digest",
                "none" if recipient.digest_hour is None else f"at {recipient.digest_hour}:00 ({recipient.zone})",
            ),
            ("Repeats the same text after", in_words(recipient.repeat_after) if recipient.repeat_after else "at once"),
            (
                "Second route",
                joined([link(page("runs_recipient", second.pk), second.name), after], "") if second else "none",
            ),
            ("Groups", joined(groups) if groups else "none"),
        ]
    )
