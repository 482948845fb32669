"""Subscriptions: where events leave to, and how it goes."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.defaultfilters import pluralize
from django.utils import timezone

from config.console.access.audit import entries_of
from config.console.parts.bulk import carry_out
from config.console.parts.dialogs import dialog, leave
from config.console.parts.html import format_html
from config.console.parts.links import link, listing, page
from config.console.parts.moments import distance, moment
from config.console.parts.pages import form_page, reveal, reveal_in_dialog
from config.console.parts.panel import Panel, acting, allowed, button, column, time_column
from config.console.parts.sections import Facts, Notice, Section, Table
from config.console.parts.service_button import service_button
from config.console.sources.outbound.form import NewSubscriptionForm, RedeliverForm, RotateForm, SubscriptionForm
from config.console.sources.outbound.words import table_of
from runs.exceptions import RunError
from triggers.models import EventDelivery, Subscription
from triggers.outbound.edit import change_subscription, create_subscription, remove_subscription
from triggers.outbound.redeliver import redeliver_failed
from triggers.outbound.secrets import rotate
from triggers.outbound.test_event import TYPE, send_test

SHOWN = 20
DELETE = dialog("Delete this subscription?", "Waiting deliveries fail. Sent ones stay.", "Delete it")


@admin.register(Subscription)
class SubscriptionPanel(Panel):
    """Where events leave to, as signed webhooks."""

    list_display = ("slug", "state", "address", "wants", "failing")
    list_filter = ("enabled",)
    search_fields = ("slug", "address")
    search_help_text = "subscription or address"
    ordering = ("slug",)
    actions = ("enable_chosen", "disable_chosen")
    actions_detail = ("edit", "send_test", "rotate_secret", "redeliver", "delete_this")
    has_add_permission = allowed("triggers.add_subscription")
    has_edit_permission = allowed("triggers.change_subscription")
    has_redeliver_permission = allowed("triggers.redeliver_subscription")

    failing = time_column("failing since", "failing_since")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Subscription]:
        return super().get_queryset(request).defer("ciphertext")

    @column("state", label={"enabled": "success", "failing": "warning", "disabled": "danger"})
    def state(self, subscription: Subscription) -> str:
        if not subscription.enabled:
            return "disabled"
        return "failing" if subscription.failing_since else "enabled"

    @column("events")
    def wants(self, subscription: Subscription) -> str:
        return in_words(subscription)

    # Making and changing

    def new(self, request: HttpRequest) -> HttpResponse:
        form = NewSubscriptionForm(request.POST or None)
        if form.is_valid():
            values = {**form.values(), "slug": form.cleaned_data["slug"], "secret": form.cleaned_data["secret"]}
            made = form.carry_out(partial(create_subscription, **values, by=acting(request)))
            if made is not None:
                subscription, secret = made
                back = page("triggers_subscription", subscription.pk)
                explained = "Enter it at the receiver, which checks signatures with it"
                title = f"Secret of {subscription.slug}"
                return reveal(self, request, title=title, secret=secret, explained=explained, back=back)
        back, groups = listing("triggers_subscription"), form.groups()
        return form_page(
            self, request, form, title="New subscription", submit="Create the subscription", back=back, groups=groups
        )

    @button("Edit", permissions=["triggers.change_subscription"], icon="edit")
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        subscription = get_object_or_404(Subscription, pk=object_id)
        form = SubscriptionForm(request.POST or None, subscription=subscription)
        back = page("triggers_subscription", object_id)
        if form.is_valid():
            act = partial(change_subscription, subscription, form.values(), by=acting(request))
            if form.carry_out(act) is not None:
                messages.success(request, "Saved.")
                return leave(request, back)
        title, groups = f"Subscription {subscription.slug}", form.groups()
        return form_page(self, request, form, title=title, submit="Save", back=back, groups=groups, obj=subscription)

    @button(
        "Send a test event",
        permissions=["triggers.redeliver_subscription"],
        icon="send",
        url_path="test",
        dialog=dialog(
            "Send a test event?",
            f"An event of type {TYPE} is sent only to this subscription, signed and retried like any other. It wakes no agent.",
            "Send it",
        ),
    )
    def send_test(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        subscription = get_object_or_404(Subscription, pk=object_id)
        try:
            delivery = send_test(subscription, by=acting(request))
        except RunError as refusal:
            messages.error(request, str(refusal))
            return leave(request, page("triggers_subscription", object_id))
        messages.success(request, "The test event is on its way.")
        return leave(request, page("triggers_eventdelivery", delivery.pk))

    @button(
        "New secret",
        permissions=["triggers.change_subscription"],
        icon="key",
        url_path="rotate-secret",
        dialog=dialog(
            "Create a new secret?", "It is shown once. Until the old one ends, both sign.", "Create it", RotateForm
        ),
    )
    def rotate_secret(self, request: HttpRequest, form: RotateForm, object_id: str) -> HttpResponse:
        subscription = get_object_or_404(Subscription, pk=object_id)
        back = page("triggers_subscription", object_id)
        try:
            plain = rotate(subscription, grace=form.grace, by=acting(request))
        except ValidationError as refusal:
            messages.error(request, " ".join(refusal.messages))
            return leave(request, back)
        explained = (
            f"Enter it at the receiver of {subscription.slug}. The old one signs for {form.cleaned_data['hours']} h."
        )
        return reveal_in_dialog(request, secret=plain, explained=explained, back=back)

    @service_button(
        "Delete",
        "triggers.delete_subscription",
        DELETE,
        icon="delete",
        url_path="remove",
        done="Deleted.",
        to_list=True,
    )
    def delete_this(self, object_id: str, by: str) -> None:
        remove_subscription(get_object_or_404(Subscription, pk=object_id), by=by)

    @button(
        "Redeliver",
        permissions=["triggers.redeliver_subscription"],
        icon="replay",
        variant="primary",
        dialog=dialog(
            "Send failed deliveries again?",
            "With the same ids: a receiver that has handled one before recognises it. At most 10,000 at once.",
            "Redeliver",
            RedeliverForm,
        ),
    )
    def redeliver(self, request: HttpRequest, form: RedeliverForm, object_id: str) -> HttpResponse:
        subscription = get_object_or_404(Subscription, pk=object_id)
        try:
            count = redeliver_failed(subscription, since=form.from_then, by=acting(request))
        except RunError as refusal:
            messages.error(request, str(refusal))
        else:
            messages.success(request, f"{count:,} event{pluralize(count)} will be sent again.")
        return leave(request, page("triggers_subscription", object_id))

    def possible_buttons(self, request: HttpRequest, object_id: str) -> Mapping[str, bool]:
        is_enabled = Subscription.objects.filter(pk=object_id, enabled=True).exists()
        return {"redeliver": is_enabled, "send_test": is_enabled}

    @admin.action(description="Enable", permissions=["edit"])
    def enable_chosen(self, request: HttpRequest, queryset: QuerySet[Subscription]) -> None:
        self._switch(request, queryset, on=True)

    @admin.action(description="Disable", permissions=["edit"])
    def disable_chosen(self, request: HttpRequest, queryset: QuerySet[Subscription]) -> None:
        self._switch(request, queryset, on=False)

    def _switch(self, request: HttpRequest, queryset: QuerySet[Subscription], *, on: bool) -> None:
        carry_out(request, queryset, partial(change_subscription, changes={"enabled": on}), done=_word(on))

    # One subscription

    def sections(self, request: HttpRequest, obj: Subscription) -> list[Section]:
        rows = [
            ("Name", obj.slug),
            ("Sends to", obj.address),
            ("Event types", ", ".join(obj.types)),
            ("Sources", ", ".join(obj.sources) or "any"),
            ("Filter", obj.filter and format_html("<code>{}</code>", obj.filter)),
            ("Created", moment(obj.created_at)),
            ("All deliveries", link(listing("triggers_eventdelivery", name=obj.slug), "list")),
        ]
        theirs = EventDelivery.objects.filter(subscription_id=obj.pk).select_related("event").order_by("-id")
        theirs = theirs.defer("event__data", "event__body", "event__headers", "tries")
        latest = table_of(list(theirs[:SHOWN]), title="Latest deliveries", empty="No event has been sent to it yet.")
        failed = table_of(
            list(theirs.filter(status="failed")[:SHOWN]),
            title="Latest failed deliveries",
            empty="None within the retention period.",
        )
        return [_notice(obj), Facts(rows=rows), failed, latest, _secrets(obj), entries_of("subscription", obj.pk)]


def in_words(subscription: Subscription) -> str:
    events = ", ".join("any event" if type_ == "*" else type_ for type_ in subscription.types)
    sources = f" from {', '.join(subscription.sources)}" if subscription.sources else ""
    return f"{events}{sources}{f', where {subscription.filter}' if subscription.filter else ''}"


def _word(on: bool) -> str:
    return "enabled" if on else "disabled"


def _notice(subscription: Subscription) -> Notice:
    if subscription.disabled_reason:
        return Notice(
            text=f"Disabled: {subscription.disabled_reason}.",
            level="bad",
            details=[
                "No event is sent to it. Correct its URL or the endpoint, enable it under Edit, and redeliver what failed.",
                "Events that come while it is disabled are not sent to it later.",
            ],
        )
    if not subscription.enabled:
        return Notice(text="Disabled: no event is sent to it. Enable it under Edit.", level="warning")
    if subscription.failing_since:
        since = distance(subscription.failing_since)
        text = format_html("Every attempt has failed, since the first one {}: {}.", since, subscription.error)
        return Notice(text=text, level="warning", details=["They are repeated; after 5 days it is disabled."])
    return Notice(text="Enabled.", level="good")


def _secrets(subscription: Subscription) -> Table:
    now = timezone.now()
    rows = [
        (
            one.pk,
            "ended" if one.not_after and one.not_after <= now else "signs",
            moment(one.created_at),
            moment(one.not_after) if one.not_after else "no end",
        )
        for one in subscription.secrets.order_by("-pk").defer("ciphertext")[:SHOWN]
    ]
    return Table(
        title="Secrets",
        note="Stored encrypted and never shown again. While two are valid, each delivery has a signature by both.",
        headers=("No.", "State", "From", "Until"),
        rows=rows,
        empty="None.",
    )
